import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { keepToken, takeToken } from "./lib/api";
import { language, setLanguage } from "./lib/i18n";
import { showTheme } from "./lib/theme";
import "@xyflow/react/dist/base.css";
import "./styles/theme.css";
import "./styles/page.css";
import "./styles/run.css";
import "./styles/views.css";

// The token leaves the address at once, before anything can be shared, bookmarked or logged.
const token = takeToken(location.hash);
if (token !== null) {
  keepToken(token);
  history.replaceState(null, "", `${location.pathname}#/`);
}
showTheme();
setLanguage(language());

const root = document.getElementById("root");
if (root) createRoot(root).render(<StrictMode><App /></StrictMode>);
