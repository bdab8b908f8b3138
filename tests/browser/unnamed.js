// Things that can be pressed, typed into or looked at and have no name; ids that are there twice; labels of nothing.
() => {
  const USED = "button, a[href], input, select, textarea, [role=tab], [role=region], dialog, [role=img], [role=meter]";
  const DRAWN = "[aria-hidden=true], .react-flow__edges, .react-flow__background, .react-flow__minimap";
  const seen = (element) => element.checkVisibility();
  const named = (id) => document.getElementById(id)?.innerText;
  const name = (element) =>
    (element.getAttribute("aria-label") || element.innerText || element.title || element.placeholder ||
      [...(element.labels ?? [])].map((label) => label.innerText).join(" ") ||
      named(element.getAttribute("aria-labelledby")) || "").trim();
  const wrong = [];
  for (const element of document.querySelectorAll(USED)) {
    if (seen(element) && !name(element)) wrong.push(`no name: ${element.outerHTML.slice(0, 120)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`twice: ${id}`);
  for (const attribute of ["aria-labelledby", "aria-controls"]) {
    for (const element of document.querySelectorAll(`[${attribute}]`)) {
      if (!document.getElementById(element.getAttribute(attribute))) wrong.push(`${attribute} of nothing`);
    }
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (seen(svg) && !svg.closest(DRAWN)) wrong.push(`a drawing that is read out: ${svg.outerHTML.slice(0, 80)}`);
  }
  return wrong;
};
