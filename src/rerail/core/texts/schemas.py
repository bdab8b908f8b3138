"""What is wrong with a value, or with the schema it is checked against."""

from __future__ import annotations

SCHEMAS: dict[str, dict[str, str]] = {
    "schema.at": {"en": "{place}: {message}", "zh": "{place}：{message}"},
    "schema.too_deep": {
        "en": "nested too deeply to be checked; make it flatter",
        "zh": "嵌套过深，无法检查；请减少层次",
    },
    "schema.nothing": {"en": "got {value}; nothing is allowed here", "zh": "实际为 {value}；此处不允许任何值"},
    "schema.type": {"en": "expected {types}, got {value}", "zh": "应为 {types}，实际为 {value}"},
    "schema.minimum": {"en": "expected at least {limit}, got {value}", "zh": "应不小于 {limit}，实际为 {value}"},
    "schema.maximum": {"en": "expected at most {limit}, got {value}", "zh": "应不大于 {limit}，实际为 {value}"},
    "schema.exclusiveMinimum": {
        "en": "expected more than {limit}, got {value}",
        "zh": "应大于 {limit}，实际为 {value}",
    },
    "schema.exclusiveMaximum": {
        "en": "expected less than {limit}, got {value}",
        "zh": "应小于 {limit}，实际为 {value}",
    },
    "schema.minLength": {
        "en": "expected at least {limit:character|characters}, got {count}: {value}",
        "zh": "应至少有 {limit} 个字符，实际有 {count} 个：{value}",
    },
    "schema.maxLength": {
        "en": "expected at most {limit:character|characters}, got {count}: {value}",
        "zh": "应至多有 {limit} 个字符，实际有 {count} 个：{value}",
    },
    "schema.minItems": {
        "en": "expected at least {limit:item|items}, got {count}: {value}",
        "zh": "应至少有 {limit} 项，实际有 {count} 项：{value}",
    },
    "schema.maxItems": {
        "en": "expected at most {limit:item|items}, got {count}: {value}",
        "zh": "应至多有 {limit} 项，实际有 {count} 项：{value}",
    },
    "schema.minProperties": {
        "en": "expected at least {limit:property|properties}, got {count}: {value}",
        "zh": "应至少有 {limit} 个属性，实际有 {count} 个：{value}",
    },
    "schema.maxProperties": {
        "en": "expected at most {limit:property|properties}, got {count}: {value}",
        "zh": "应至多有 {limit} 个属性，实际有 {count} 个：{value}",
    },
    "schema.const": {"en": "got {value}; expected {option}", "zh": "实际为 {value}；应为 {option}"},
    "schema.enum": {
        "en": "got {value}; expected one of {names}{more}{near}",
        "zh": "实际为 {value}；应为 {names}{more} 之一{near}",
    },
    "schema.more": {"en": " and {count} more", "zh": " 等（另有 {count} 个）"},
    "schema.near": {"en": "; did you mean {guess}?", "zh": "；您是不是要找 {guess}？"},
    "schema.pattern": {
        "en": "expected a text that matches {pattern}, got {value}",
        "zh": "应为匹配 {pattern} 的文本，实际为 {value}",
    },
    "schema.multipleOf": {
        "en": "expected a multiple of {step}, got {value}",
        "zh": "应为 {step} 的倍数，实际为 {value}",
    },
    "schema.propertyNames": {"en": "the name {name} is not allowed: {message}", "zh": "不允许名称 {name}：{message}"},
    "schema.contains": {
        "en": "expected at least {least:item|items} of the wanted kind, got {count}",
        "zh": "应至少有 {least} 项符合要求，实际有 {count} 项",
    },
    "schema.maxContains": {
        "en": "expected at most {most:item|items} of the kind, got {count}",
        "zh": "应至多有 {most} 项符合要求，实际有 {count} 项",
    },
    "schema.uniqueItems": {
        "en": "items {before} and {at} are the same: {item}; each may occur once",
        "zh": "第 {before} 项与第 {at} 项相同：{item}；每项只能出现一次",
    },
    "schema.oneOf": {
        "en": "got {value}, which fits alternatives {numbers}; make it fit only one",
        "zh": "{value} 同时符合第 {numbers} 种选择；请使它只符合一种",
    },
    "schema.anyOf": {
        "en": "fits none of {count} alternatives: {reasons}",
        "zh": "不符合 {count} 种选择中的任何一种：{reasons}",
    },
    "schema.not": {"en": "got {value}, which is ruled out here", "zh": "实际为 {value}，此处不允许"},
    "schema.list.or": {"en": "{first} or {last}", "zh": "{first} 或 {last}"},
    "schema.list.and": {"en": "{first} and {last}", "zh": "{first} 和 {last}"},
    "schema.huge": {"en": "a huge integer", "zh": "极大的整数"},
    "schema.kind.regex": {"en": "a regular expression", "zh": "正则表达式"},
    "schema.kind.string": {"en": "a string", "zh": "字符串"},
    "schema.kind.number": {"en": "a number", "zh": "数"},
    "schema.kind.size": {"en": "a whole number of at least 0", "zh": "不小于 0 的整数"},
    "schema.kind.schemas": {"en": "a list of at least one schema", "zh": "至少含一个 schema 的列表"},
    "schema.kind.map": {"en": "an object of schemas", "zh": "由 schema 组成的对象"},
    "schema.kind.list": {"en": "a list", "zh": "列表"},
    "schema.kind.names": {"en": "a list of names", "zh": "名称列表"},
    "schema.kind.name_lists": {"en": "lists of names by name", "zh": "按名称给出的名称列表"},
    "schema.kind.flag": {"en": "true or false", "zh": "true 或 false"},
    "schema.kind.positive": {"en": "a number above 0", "zh": "大于 0 的数"},
    "schema.kind.schema": {"en": "a schema", "zh": "schema"},
    "schema.bad_regex": {
        "en": "the pattern {pattern} cannot be used: {reason}",
        "zh": "无法使用模式 {pattern}：{reason}",
    },
    "schema.regex.construct": {
        "en": "{found} is not supported, like all look-around, back references, `\\Z`, possessive repeats and comments; write the pattern without it",
        "zh": "不支持 {found}（也不支持环视、反向引用、`\\Z`、占有量词和注释）；请改写模式",
    },
    "schema.regex.set": {
        "en": "{found} inside a set means different things to different engines; put a backslash before it",
        "zh": "集合中的 {found} 在不同引擎中含义不同；请在它前面加反斜杠",
    },
    "schema.regex.after_end": {
        "en": "{found} follows `$`, which ends the text; remove one of them",
        "zh": "{found} 位于表示文本结尾的 `$` 之后；请删除其中之一",
    },
    "schema.regex.large": {
        "en": "its repeats make it too large (more than {most} parts, or fewer of many letters); use maxLength for long texts, and [A-Za-z0-9_] for \\w",
        "zh": "重复展开后过大（超过 {most} 个部分，或包含大字符集）；长文本请使用 maxLength，\\w 可改为 [A-Za-z0-9_]",
    },
    "schema.unknown_type": {
        "en": "unknown type {name}; the types are {types}",
        "zh": "未知的类型 {name}；可用类型为 {types}",
    },
    "schema.unknown_type_near": {
        "en": "unknown type {name}; did you mean {guess}?",
        "zh": "未知的类型 {name}；您是不是要找 {guess}？",
    },
    "schema.no_type": {"en": "expected at least one type", "zh": "应至少有一个类型"},
    "schema.outside": {
        "en": "{value} lies outside of the schema; copy it into $defs and refer to it there",
        "zh": "{value} 在 schema 之外；请复制到 $defs 并在那里引用",
    },
    "schema.unsupported": {"en": "not supported; write the rule without it", "zh": "不支持；请不用它来写这条规则"},
    "schema.no_schema": {
        "en": "#: expected a schema, that is an object, true or false; got {value}",
        "zh": "#：应为 schema，即对象、true 或 false；实际为 {value}",
    },
    "schema.levels": {"en": "nested more than {limit} levels deep; use $ref", "zh": "嵌套超过 {limit} 层；请使用 $ref"},
    "schema.prefix_items": {
        "en": "expected a schema, because prefixItems is given",
        "zh": "因为给出了 prefixItems，应为 schema",
    },
    "schema.own_id": {
        "en": "{ref} stands inside a schema with an $id of its own; that is not supported",
        "zh": "{ref} 位于自带 $id 的 schema 之内；不支持这种写法",
    },
    "schema.names_nothing": {"en": "{ref} names nothing in the schema{near}", "zh": "schema 中没有 {ref}{near}"},
    "schema.circle": {"en": "{ref}: $ref leads back to itself: {trail}", "zh": "{ref}：$ref 又引回自身：{trail}"},
    "schema.unknown.argument": {"en": "unknown argument {name}{near}", "zh": "未知的参数 {name}{near}"},
    "schema.required.argument": {"en": "missing required argument {name}", "zh": "缺少必需的参数 {name}"},
    "schema.dependent.argument": {
        "en": "missing argument {other}, required because {name} is given",
        "zh": "缺少参数 {other}：给出 {name} 时必须有它",
    },
    "schema.unknown.key": {"en": "unknown key {name}{near}", "zh": "未知的键 {name}{near}"},
    "schema.required.key": {"en": "missing required key {name}", "zh": "缺少必需的键 {name}"},
    "schema.dependent.key": {
        "en": "missing key {other}, required because {name} is given",
        "zh": "缺少键 {other}：给出 {name} 时必须有它",
    },
    "schema.unknown.field": {"en": "unknown field {name}{near}", "zh": "未知的字段 {name}{near}"},
    "schema.required.field": {"en": "missing required field {name}", "zh": "缺少必需的字段 {name}"},
    "schema.dependent.field": {
        "en": "missing field {other}, required because {name} is given",
        "zh": "缺少字段 {other}：给出 {name} 时必须有它",
    },
}
