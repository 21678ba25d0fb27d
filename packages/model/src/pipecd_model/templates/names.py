# SPDX-License-Identifier: Apache-2.0
"""The names of all functions that sprig has for texts: those a template may call, and the others.

Each is in one of the two lists, so that a new version of the engine cannot bring in a function
that was not reviewed. A function that is not available has a reason, shown to its user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ALLOWED: Final = {
    "texts": """
        abbrev abbrevboth camelcase cat contains hasPrefix hasSuffix hello indent initials
        kebabcase lower nindent nospace plural quote repeat replace snakecase squote substr
        swapcase title trim trimAll trimall trimPrefix trimSuffix trunc untitle upper wrap wrapWith
    """,
    "regular expressions": """
        regexFind regexFindAll regexMatch regexQuoteMeta regexReplaceAll regexReplaceAllLiteral
        regexSplit mustRegexFind mustRegexFindAll mustRegexMatch mustRegexReplaceAll
        mustRegexReplaceAllLiteral mustRegexSplit
    """,
    "numbers": """
        add add1 add1f addf atoi biggest ceil div divf duration float64 floor int int64 max maxf
        min minf mod mul mulf round seq sub subf toDecimal until untilStep
    """,
    "lists": """
        append chunk compact concat first has initial join last list mustAppend mustChunk
        mustCompact mustFirst mustHas mustInitial mustLast mustPrepend mustPush mustRest
        mustReverse mustSlice mustUniq mustWithout prepend push rest reverse slice sortAlpha split
        splitList splitn toStrings tuple uniq without
    """,
    "maps": "deepCopy dict dig get hasKey keys mustDeepCopy omit pick pluck values",
    "choices": "all any coalesce default empty fail ternary",
    "forms": """
        adler32sum b32dec b32enc b64dec b64enc fromJson mustFromJson mustToJson mustToPrettyJson
        mustToRawJson sha1sum sha256sum sha512sum toJson toPrettyJson toRawJson toString
        semverCompare urlJoin urlParse
    """,
    "kinds": "deepEqual kindIs kindOf typeIs typeIsLike typeOf",
    "paths": "base clean dir ext isAbs osBase osClean osDir osExt osIsAbs",
}

_REFUSED: Final = {
    "templates cannot read the environment; use an attachment or a secret": "env expandenv",
    "templates cannot use the network": "getHostByName",
    "a template gives the same text each time, so it has no clock": """
        ago date dateInZone dateModify date_in_zone date_modify durationRound htmlDate
        htmlDateInZone mustDateModify must_date_modify mustToDate now toDate unixEpoch
    """,
    "a template gives the same text each time; keep keys and passwords as secrets": """
        bcrypt buildCustomCert decryptAES derivePassword encryptAES genCA genCAWithKey
        genPrivateKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert
        genSignedCertWithKey htpasswd randAlpha randAlphaNum randAscii randBytes randInt
        randNumeric shuffle uuidv4
    """,
    "maps are not changed in place; give all entries to dict at once": """
        merge mergeOverwrite mustMerge mustMergeOverwrite set unset
    """,
    "compare versions with semverCompare": "semver",
}

ALLOWED: Final = frozenset(name for names in _ALLOWED.values() for name in names.split())

REFUSED: Final[Mapping[str, str]] = {
    name: reason for reason, names in _REFUSED.items() for name in names.split()
}

GO: Final = frozenset(
    {"and", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or"}
    | {"print", "printf", "println", "urlquery"}
)
"""What Go's templates have by themselves; `call` has nothing to call here."""
