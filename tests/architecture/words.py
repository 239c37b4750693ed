"""The wording of docstrings and comments: constructions that are banned, and the verbs by which a sentence is known."""

from __future__ import annotations

import re

BANNED = {
    r"(?:^|[.!?;:] )(?:Who|Whoever|Whom|Whose|Whosoever)\b": "name the actor: worker, controller, host, node",
    r"(?:^|[.!?] )(?:What|Whatever)\b": "begin with a verb or with the thing: `Return the ...`, `The ... that ...`",
    r"(?:^|[.!?] )Of\b": "begin with the noun that the `of` belongs to",
    r"^(?:who|whoever|what|whatever|of|whose)\b": "a comment names its subject too",
    r"\b(?:whoever|whosoever|whomever)\b": "name the actor",
    r"\b(?:goes|go|going|went|gone|carry|carries) on\b": "say `continues`, `uses next`, `happens`",
    r"\bwhat (?:came|comes|come|becomes|became|has become) of\b": "say `the outcome of` or `the state of`",
    r"\b(?:comes?|came) to nothing\b": "say that it failed, expired or was cancelled",
    r"\b(?:somebody|someone|anybody|anyone)\b": "name the actor: another node, a peer, the caller, a user",
    r"\b(?:nobody|everybody|everyone)\b": "name the actors: no node, every worker, all peers",
    r"\b(?:is|are) (?:nobody|somebody|no one)'s\b": "name the owner",
    r"\b(?:no business|is not ours|none of ours)\b": "state the fact in the component's own terms",
    r"\banew\b": "say `again`, `a second time` or `from the start`",
    r"\bfor good\b": "say `permanently`",
    r"(?:^|[.] )(?:All|Both|Each|Some|None) of (?:them|it|these|those)\.": "say all of which things",
    r"\b(?:its|their|his) turn\.$": "say the order in which things happen",
    r"\bso (?:many|much)\b(?! (?:that|as)\b)": "give the number or the parameter that holds it",
    r"\b(?:hands?|handed|handing) in\b": "say `submits` or `uploads`",
    r"\b(?:at hand|to be had|comes? along|the like|for ever)\b": "say available, attached, similar, forever",
    r"\b(?:by and by|the while|no more\.)": "say when, in terms of events or seconds",
    r"\b(?:let|lets|letting) (?:it |them |him )?in\b": "say `admit` or `accept`",
    r"\bcomes? by\b": "say which event happens",
    r"\b(?:befalls?|befell|bears? witness|behold|heed)\b": "use the plain verb: happens, shows, uses",
}
"""Each pattern (case matters) with what to write instead. Patterns anchored to a sentence match at its first word."""

CLAUSE_NAME = re.compile(r"test_(?:who|whom|whose|whoever|what|whatever|of|nobody)_")
"""How a test's name begins whose subject is a clause. The remedy: `test_`, the actor or the thing, a verb."""

_IMPERATIVES = """
    abort accept acknowledge add admit advance aggregate allow answer append apply ask assert assign attach average
    await begin bind block break bring buffer build cache calculate call cancel carry change charge check choose
    claim clear clip close collect combine commit compare compile complete compress compute connect construct
    continue convert copy count create credit cut deal decide decode decompress define delete deliver derive
    describe detach detect determine dial discard dispatch divide do download draw drop dump emit encode end enforce
    enqueue enrol ensure enter estimate evaluate exchange execute exit expand expire export extend extract fail fall
    feed fetch fill filter find finish fit flush fold follow forget format forward free freeze generate get give
    grant greet group guard handle hang hash hold identify ignore import include increase index inform initialise
    insert inspect install interpolate interpret invert issue iterate join judge keep kill leave lend let limit link
    list listen load lock log look lower make map mark match measure merge migrate mix move multiply name negotiate
    normalise note notify number observe offer omit open order overwrite pack parse pass pause perform pick place
    plan play plot predict prepare print process prove prune publish pull put quantise quarantine query queue raise
    rank read rebuild receive recognise reconnect record recover redirect reduce refuse register reject release
    reload remember remove rename render renew reopen repair repeat replace replay reply report request require
    reserve reset resolve restart restore restrict resume retry return reuse revoke roll rotate round run sample
    save scale schedule score seal search see select send serialise serve set settle shake share shorten show
    shuffle shut sign simulate skip sleep smooth solve sort split spread stamp start stay stop store stream strip
    submit subtract sum suspend swap switch sync take tell terminate test throttle time track train transfer
    translate treat trim truncate try tune turn undo unlock unpack update upload use validate verify view visit void
    wait wake walk warn watch weigh withdraw wrap write yield
"""
IMPERATIVES = frozenset(_IMPERATIVES.split())
"""Verbs that may begin the docstring of a function, in the imperative or in the third person (`Returns`)."""

_FINITE = """
    is are was were has have had does did can cannot could may might must shall should will would accepts adds
    agrees allows answers applies arrives asks becomes begins belongs carries comes completes computes concerns
    connects contains continues decides declares decodes depends derives describes differs dies enters equals
    exceeds exists expires fails fetches follows gets gives goes happens hears holds includes joins judges keeps
    knows lacks lasts learns lets lies listens lives looks loses lowers makes means meets needs opens owns pays
    produces proves publishes raises reaches reads receives refuses rejects requires returns rises says sees sends
    serves shows stays takes tells trains uses waits wants weighs withstands writes yields came ended gave held
    joined kept knew led left lost made met read ran said saw sent took went wrote
"""
FINITE = frozenset(_FINITE.split())
"""Verbs that may stand anywhere in the first sentence. Forms that are plural nouns too (names, rows) are left out."""


def banned(text: str) -> list[str]:
    """Return, for each banned construction in a docstring or comment, the matched words and the advice."""
    flat = re.sub(r"\s+", " ", text).strip()
    found = []
    for pattern, advice in BANNED.items():
        if match := re.search(pattern, flat):
            found.append(f"{match[0].strip()!r}: {advice}")
    return found


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring's first paragraph, without the code in it."""
    paragraph = text.strip().partition("\n\n")[0]
    flat = re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "x", paragraph))
    return re.split(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.) ", flat)[0]


def has_verb(sentence: str) -> bool:
    """Return whether the sentence begins with a verb or contains an unambiguous one."""
    words = re.findall(r"[a-z]+(?:'[a-z]+)?", sentence.lower())
    if not words:
        return False
    stems = {words[0], words[0].removesuffix("s"), words[0].removesuffix("es"), words[0].removesuffix("ies") + "y"}
    return bool(stems & IMPERATIVES) or not FINITE.isdisjoint(words)


_OF_COMMENTS = r"^(?:who|whoever|what|whatever|of|whose)\b"
BANNED_IN_PAGES = {pattern: advice for pattern, advice in BANNED.items() if pattern != _OF_COMMENTS} | {
    r"\bas ever\b|\bas before\b$": "say what stays the same",
    r"\b(?:the like|and the rest)\b": "name the things",
    r"\b(?:rot|mends?|mended)\b": "say `break`, `fix`, `fixed`",
    r"(?:^|[.!?] )(?:Where|When) [^.,?]*, (?:that|so) is\b": "say the condition and its consequence",
}
"""The same for pages of the documentation, whose table cells may be clauses."""


def banned_in_pages(text: str) -> list[str]:
    """Return, for each banned construction in a paragraph of the documentation, the matched words and the advice."""
    flat = re.sub(r"\s+", " ", text).strip()
    matches = ((re.search(pattern, flat), advice) for pattern, advice in BANNED_IN_PAGES.items())
    return [f"{match[0].strip()!r}: {advice}" for match, advice in matches if match]
