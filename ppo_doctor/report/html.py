"""Reports as one HTML file that loads nothing from the network, runs only its own script, and can be printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.words import CHAIN
from ppo_doctor.report import html_plots, phrases
from ppo_doctor.report.advice import advice
from ppo_doctor.report.html_markup import NOTHING, Markup, code, document, el, fold, from_asset, join, row, table, text
from ppo_doctor.report.html_plots import MOST_PLOTS, Drawing, measured
from ppo_doctor.report.phrases import (
    MARKS,
    UNIT,
    apart,
    by_gravity,
    causes_of,
    chance,
    count,
    decibels,
    entry_says,
    finding_says,
    first_action,
    flowing,
    relation_to_leader,
    short,
    weighed,
    wrong,
)
from ppo_doctor.report.plots import COLUMNS, small
from ppo_doctor.report.screen import NO_LOG
from ppo_doctor.report.summary import relative, summarize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model.diagnosis import ChainLink, Diagnosis, LedgerEntry, RankedCause
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import LinkState, Status, Verdict
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.summary import ProblemSummary, Row, Summary, Table

#: Scripts of the report of a run.
SCRIPTS = ("theme.js", "report.js")
#: Limits of a page of several runs: the bytes of its sections, its plots in all, and the plots each run has at least.
MOST_BYTES, MOST_PLOTS_IN_ALL, FEWEST_PLOTS = 1_700_000, 48, 2
#: Up to this many runs, plots are as fine as on a page of one run.
FEW_RUNS = 6
#: The most runs whose reward is drawn in the table of runs.
MOST_CURVES = 200
VERDICT_MARKS: Mapping[Verdict, str] = {"healthy": "✓", "warning": "!", "unhealthy": "✗", "inconclusive": "?"}
#: SVG paths of the signal in one link of the chain by its state, 100 wide and 40 high.
TRACES: Mapping[LinkState, str] = {
    "alive": "M0 20H30L35 16L41 26L48 4L56 36L62 14L67 20H100",
    "weak": "M0 20H42L47 16L52 24L57 20H100",
    "wrong": "M0 20H20L35 36L50 4L65 36L80 4L90 20H100",
    "dead": "M0 20H100M42 8L58 32M58 8L42 32",
    "unknown": "M0 20H100",
}
NO_PLOTS = "Plots are left out: this page was made without the log's records."
#: States of a broken link.
ILL = ("weak", "wrong", "dead")


@frozen
class Entry:
    """A run on a page of several, with a name that is unique on the page."""

    name: str
    summary: Summary
    diagnosis: Diagnosis
    run: Run | None


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as a page; without the run it has a note instead of plots."""
    body = _run(summarize(diagnosis, run), diagnosis, run, options, Drawing())
    return _page(f"{diagnosis.verdict}: {diagnosis.run.id}", body, diagnosis.tool_version)


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions, runs: Sequence[Run | None] = ()) -> str:
    """Return several diagnoses as one page: a table of all, the most severe first, then each run under a fold.

    To limit the size of the page, runs beyond `MOST_BYTES` are in the table only, and all runs together have about
    `MOST_PLOTS_IN_ALL` plots.
    """
    rows = by_gravity(diagnoses, runs)
    names = apart([diagnosis.run.id for diagnosis, _ in rows])
    entries = [
        Entry(name=n, summary=summarize(*row), diagnosis=row[0], run=row[1]) for n, row in zip(names, rows, strict=True)
    ]
    folds = _folds(entries, options)
    listed = [_run_row(entry, at, linked=at < len(folds)) for at, entry in enumerate(entries)]
    left = len(entries) - len(folds)
    note = el("p", text(f"{count(left, 'run')} of these in the table only: name fewer runs to see more."), cls="quiet")
    heads = map(text, ("Run", "Verdict", "What is wrong, and what to do first", "Reward"))
    runs_table = table(heads, listed, "Every run with its verdict, what is wrong and its reward", cls="runs")
    title = f"{count(len(entries), 'run')} judged"
    body = join((el("h1", text(title), id="verdict"), runs_table, note if left else NOTHING, *folds))
    return _page(title, body, diagnoses[0].tool_version if diagnoses else "")


def _folds(entries: Sequence[Entry], options: RenderOptions) -> list[Markup]:
    """Return the sections of runs, each under a fold, up to `MOST_BYTES` in all."""
    most = min(MOST_PLOTS, max(FEWEST_PLOTS, MOST_PLOTS_IN_ALL // max(len(entries), 1)))
    drawing = Drawing(most=most, columns=COLUMNS if len(entries) <= FEW_RUNS else COLUMNS // 2)
    folds: list[Markup] = []
    size = 0
    for at, entry in enumerate(entries):
        body = _run(entry.summary, entry.diagnosis, entry.run, options, drawing, f"run-{at}-")
        head = el("h2", badge(entry.summary.verdict), text(f" {entry.name}", 300))
        section = el("details", el("summary", head), body, cls="one-run", id=f"run-{at}")
        size += len(section.encode())
        if folds and size > MOST_BYTES:
            break
        folds.append(section)
    return folds


def _run_row(entry: Entry, at: int, *, linked: bool) -> Markup:
    """Return the row of a run: name, verdict, first problem and action, and reward."""
    name = text(entry.name, 300)
    heading = el("th", el("a", name, href=f"#run-{at}") if linked else name, scope="row")
    reward = _reward(entry.summary, entry.run if at < MOST_CURVES else None)
    cells = (badge(entry.summary.verdict), _in_short(entry.summary), reward)
    return el("tr", heading, *(el("td", cell) for cell in cells), cls="filtered")


def _in_short(summary: Summary) -> Markup:
    action = first_action(summary)
    do = el("p", el("strong", text("do ")), text(action), cls="quiet") if action else NOTHING
    return join((el("p", text(wrong(summary))), do))


def _reward(summary: Summary, run: Run | None) -> Markup:
    """Return the reward of a run as a small plot with its first and last value."""
    reward = summary.outcome
    series = run.series.get(reward.metric) if run is not None else None
    if run is None or run.steps is None or series is None or reward.start is None or reward.end is None:
        return el("span", text("not logged" if run else "not drawn"), cls="quiet")
    first, last = short(reward.start), short(reward.end)
    picture = small(series, run.steps, f"{series.raw} from {first} to {last}")
    return join((picture, el("span", text(f"{first} → {last}"), cls="quiet")))


def _page(title: str, main: Markup, version: str) -> str:
    return framed(title, main, version, search="Search causes and checks", scripts=SCRIPTS)


def framed(
    title: str,
    main: Markup,
    version: str,
    *,
    search: str,
    scripts: Sequence[str],
    styles: Sequence[str] = ("report.css",),
    data: Markup = NOTHING,
) -> str:
    """Return a page with the bar above, in which `search` says what is searched, and the line below."""
    more = f"ppo-doctor {version}. ppo-doctor explain NAME tells more about a cause, a check or a metric."
    bar = from_asset("bar.html", search=text(search))
    foot = el("footer", el("p", text(more)))
    body = join((bar, el("main", main, id="main", tabindex="-1"), foot, data))
    head = from_asset("head.html", version=text(version))
    return document(f"{title} · ppo-doctor", body, styles=styles, scripts=scripts, head=head)


def badge(verdict: Verdict) -> Markup:
    """Return a verdict with its sign."""
    mark = el("span", text(VERDICT_MARKS[verdict]), cls="mark", aria_hidden="true")
    return el("span", mark, text(f" {verdict}"), cls=f"badge {verdict}")


def _run(
    summary: Summary, diagnosis: Diagnosis, run: Run | None, options: RenderOptions, drawing: Drawing, prefix: str = ""
) -> Markup:
    """Return the report of one run; on a page of several, `prefix` makes its element ids unique."""
    groups = html_plots.exhibits(summary, diagnosis, run, drawing.most)
    plots = [html_plots.figures(group, run, drawing.columns) for group in groups]
    key = NO_PLOTS if run is None else html_plots.KEY if summary.problems else ""
    shown = relative(diagnosis)
    ill = any(link.state in ILL for link in diagnosis.chain)
    parts = (
        _hero(summary, diagnosis, prefix),
        _chain(shown) if ill else NOTHING,
        *(_problem(p, shown, options, figures, prefix) for p, figures in zip(summary.problems, plots, strict=False)),
        _pairs(phrases.rest(summary, diagnosis), "advice rest"),
        *plots[len(summary.problems) :],
        el("p", text(key), cls="quiet") if key else NOTHING,
        NOTHING if ill else fold("Signal chain", _chain(shown)),
        details(shown, run, summary, [exhibit.series for group in groups for exhibit in group], options),
    )
    return join(parts)


def _hero(summary: Summary, diagnosis: Diagnosis, prefix: str) -> Markup:
    """Return the head of a report; on a page of several runs the heading of the section has the verdict instead."""
    outcome = phrases.outcome(summary)
    lead = el("p", text(outcome), cls="lead") if outcome else NOTHING
    facts = el("ul", *(el("li", text(fact)) for fact in phrases.facts(diagnosis)), cls="facts", aria_label="The run")
    name = el("p", text(diagnosis.run.id, 300), cls="run-id")
    verdict = NOTHING if prefix else el("h1", badge(diagnosis.verdict), id="verdict")
    numbers = key_steps(summary.table) if summary.table is not None else NOTHING
    return el("section", el("div", verdict, name, cls="head"), lead, facts, numbers, cls=f"hero {diagnosis.verdict}")


def key_steps(table_: Table) -> Markup:
    """Return the table of metrics at the key steps, with usual ranges and remarks."""
    extra = phrases.extra_columns(table_)
    heads = [join((text(m.name), el("span", text(f"step {m.step}"), cls="step"))) for m in table_.key_steps]
    rows = (_row(row, [step.name for step in table_.key_steps], extra) for row in table_.rows)
    heads += [el("span", text(name), cls="beside") for name in extra]
    metrics = table((text("metric"), *heads), rows, "Metrics at the moments that tell", cls="moments")
    return el("div", metrics, cls="wide", tabindex="0", role="region", aria_label="Metrics")


def _row(row: Row, names: Sequence[str], extra: Sequence[str]) -> Markup:
    name = el("th", el("code", text(phrases.row_name(row))), scope="row")
    values = (el("td", text(v), cls=f"at-{at}") for v, at in zip(phrases.cells(row), names, strict=True))
    return el("tr", name, *values, *(el("td", text(flowing(getattr(row, column))), cls=column) for column in extra))


def _problem(
    problem: ProblemSummary, diagnosis: Diagnosis, options: RenderOptions, plots: Markup, prefix: str
) -> Markup:
    """Return the section of a problem: title, evidence and remedies, plots, and the accounts of its causes."""
    name = f"{prefix}problem-{problem.rank}"
    rank = el("span", text(str(problem.rank)), cls="rank")
    heading = el("h3" if prefix else "h2", rank, text(phrases.title(problem)), id=name)
    severity = problem.severity.value
    words = phrases.standing(problem, diagnosis)
    tags = (el("li", text(word), cls=f"sev {severity}" if word == severity else "") for word in words)
    standing = el("ul", *tags, cls="tags")
    lines = _pairs(advice(problem), "advice")
    causes = phrases.causes_of(diagnosis, problem)
    account = accounts(f"How it was weighed, in {UNIT}", causes, diagnosis, unfolded=options.why)
    parts = (heading, standing, lines, plots, account)
    return el("article", *parts, cls=f"problem {problem.severity.value}", aria_labelledby=name)


def _pairs(rows: Sequence[tuple[str, str]], cls: str) -> Markup:
    """Return a list of sentences with their labels; one without a label is a further line of code."""
    pairs = []
    for label, words in rows:
        pairs += [el("dt", text(label), cls="do" * (label == "do"))] if label else []
        pairs.append(el("dd", (code if label in ("", "at") else text)(words)))
    return el("dl", *pairs, cls=cls) if rows else NOTHING


def _chain(diagnosis: Diagnosis) -> Markup:
    """Return the signal chain as a trace that goes flat where the signal dies, the side links, and their evidence."""
    main = [link for link in diagnosis.chain if link.link in CHAIN]
    side_links = [link for link in diagnosis.chain if link.link not in CHAIN and link.state != "unknown"]
    picture = el("ol", *(_node(link) for link in main), cls="chain", aria_label="Signal chain, from rollout to ratio")
    side = el("ul", *(_node(link) for link in side_links), cls="chain side", aria_label="Beside the chain")
    return el("div", picture, side if side_links else NOTHING, _link_evidence(diagnosis.chain), cls="signal")


def _node(link: ChainLink) -> Markup:
    mark = el("span", text(MARKS[link.state]), cls="mark", aria_hidden="true")
    state = el("span", mark, text(f" {_state(link)}"), cls="state")
    # The traces of all links join to one line through the chain.
    shape = {"viewBox": "0 0 100 40", "preserveAspectRatio": "none", "aria_hidden": "true", "focusable": "false"}
    trace = el("svg", el("path", d=TRACES[link.state]), cls="trace", **shape)
    return el("li", trace, el("span", text(link.link), cls="name"), state, cls=f"link {link.state}")


def _state(link: ChainLink) -> str:
    return "not logged" if link.state == "unknown" else link.state


def _link_evidence(links: Sequence[ChainLink]) -> Markup:
    rows = [row(link.link, _state(link), flowing(link.witness)) for link in links if link.witness]
    title = "What shows the state of each link"
    return (
        fold(title, table(map(text, ("Link", "State", "What shows it")), rows, title, cls="states"))
        if rows
        else NOTHING
    )


OUTCOMES: Mapping[Status, str] = {"errored": "!", "fired": "✗", "clear": "✓", "skipped": "?"}


def details(
    diagnosis: Diagnosis, run: Run | None, summary: Summary, drawn: Sequence[str], options: RenderOptions
) -> Markup:
    """Return the details that the summary leaves out, each part under a fold; `drawn` names the metrics with plots."""
    leading = [cause for problem in summary.problems for cause in causes_of(diagnosis, problem)]
    others = [cause for cause in diagnosis.causes if cause not in leading]
    parts = (
        accounts("Also considered", others, diagnosis, unfolded=options.all),
        _statistics(drawn, run),
        _checks(diagnosis, unfolded=options.all),
        _not_ruled_out(diagnosis),
        _reading(diagnosis),
    )
    return join(parts)


def accounts(title: str, causes: Sequence[RankedCause], diagnosis: Diagnosis, *, unfolded: bool) -> Markup:
    """Return a fold with the account of each cause."""
    size = f": {count(len(causes), 'cause')}" if len(causes) != 1 else ""
    return fold(f"{title}{size}", join(_account(cause, diagnosis) for cause in causes), unfolded=unfolded)


def _account(cause: RankedCause, diagnosis: Diagnosis) -> Markup:
    """Return the account of a cause: prior, every weight, and the sum."""
    prior = _amount(decibels(cause.prior_db), text("prior"), text("how common this cause is"))
    total = _amount(decibels(cause.score_db), text("sum"), text(chance(cause.probability)), cls="sum")
    rows = (prior, *map(_weighed, weighed(cause)), total)
    far = relation_to_leader(diagnosis, cause)
    about = f"{cause.confidence}{'' if cause.benign else f', {cause.severity.value}'}{f', {far}' if far else ''}"
    head = el("p", el("strong", text(flowing(cause.title))), text(f" ({about}) "), code(cause.id), cls="of-account")
    caption = f"Account of {flowing(cause.id)}, in {UNIT}"
    listed = table(map(text, ("dB", "Check", "What it says")), rows, caption, cls="ledger")
    return el("div", head, listed, cls="filtered")


def _weighed(entry: LedgerEntry) -> Markup:
    name = join((code(entry.finding), text(f" {entry.status}")))
    return _amount(decibels(entry.db), name, text(entry_says(entry)))


def _amount(amount: str, name: Markup, words: Markup, cls: str = "") -> Markup:
    return el("tr", el("td", text(amount), cls="db"), el("th", name, scope="row"), el("td", words), cls=cls)


def _statistics(drawn: Sequence[str], run: Run | None) -> Markup:
    """Return a table with statistics of the metrics that are drawn."""
    series = [run.series[name] for name in dict.fromkeys(drawn)] if run is not None else []
    if not series:
        return NOTHING
    measures = [dict(measured(each)) for each in series]
    heads = list(dict.fromkeys(head for numbers in measures for head in numbers))
    rows = [row(s.raw, *(numbers.get(h, "–") for h in heads)) for s, numbers in zip(series, measures, strict=True)]
    listed = table(map(text, ("Metric", *heads)), rows, "Statistics of the metrics that are drawn")
    return fold("Statistics", el("div", listed, cls="wide", tabindex="0", role="region", aria_label="Statistics"))


def _checks(diagnosis: Diagnosis, *, unfolded: bool) -> Markup:
    """Return a table of all checks by status: errored, fired, clear, skipped."""
    ordered = [f for status in OUTCOMES for f in diagnosis.findings if f.status == status]
    left_out = ", ".join(flowing(name) for name in diagnosis.suppressed)
    note = el("p", text(f"Left out on request: {left_out}"), cls="quiet") if left_out else NOTHING
    skipped = el("p", text("A check that did not run is not a passed one: it says nothing."), cls="quiet")
    further = phrases.left_to_run(diagnosis)
    more = el("p", text(further), cls="quiet") if further else NOTHING
    listed = table(
        map(text, ("Outcome", "Check and what it found")), map(_check, ordered), "Every check with its outcome"
    )
    title = f"Every check: {len(ordered)}"
    return fold(title, join((skipped, more, note, listed)), cls="all-checks", unfolded=unfolded)


def _check(finding: Finding) -> Markup:
    mark = el("span", text(OUTCOMES[finding.status]), cls="mark", aria_hidden="true")
    outcome = el("td", el("span", mark, text(f" {finding.status}"), cls=f"outcome {finding.status}"))
    about = f" · {finding.link} · {finding.severity.value}"
    name = el("div", text(f"{finding.code} "), code(finding.rule), text(about), cls="about")
    place = finding.place
    lines = (place.says, *(each.does for each in place.also)) if place is not None else ()
    places = (el("div", code(line)) for line in lines)
    return el("tr", outcome, el("td", el("div", text(_result(finding))), *places, name), cls="filtered")


def _result(finding: Finding) -> str:
    """Return a finding as a sentence, or the reason if it did not run, because its title would read like a claim."""
    if finding.status in ("skipped", "errored"):
        return flowing(f"Did not run: {finding.reason or 'no reason given'}")
    return finding_says(finding)


def _not_ruled_out(diagnosis: Diagnosis) -> Markup:
    """Return the causes that are not ruled out: by this log, and by any log of its kind."""
    parts = []
    for head, fuller in (("By this log", True), (NO_LOG, False)):
        causes = [cause for cause in diagnosis.not_ruled_out if cause.a_fuller_log_could is fuller]
        rows = [join((el("dt", code(c.id)), el("dd", text(flowing(c.because))))) for c in causes]
        parts += [el("p", text(f"{head}:"), cls="quiet"), el("dl", *rows, cls="never")] if causes else []
    return fold(f"Not ruled out: {count(len(diagnosis.not_ruled_out), 'cause')}", join(parts))


def _reading(diagnosis: Diagnosis) -> Markup:
    """Return a fold with the files that were read, the notes on reading and the configuration."""
    run = diagnosis.run
    files = (row(s.path, s.container, f"{s.records - s.skipped} of {s.records}") for s in run.sources)
    settings = [row(key, str(value)) for key, value in sorted(run.config.items())]
    notes = el("ul", *(el("li", text(flowing(note))) for note in run.notes)) if run.notes else NOTHING
    parts = (
        table(map(text, ("File", "Container", "Records used")), files, "Files that were read"),
        notes,
        table(map(text, ("Setting", "Value")), settings, "Configuration as found") if settings else NOTHING,
    )
    sizes = ((len(run.sources), "file"), (len(settings), "setting"), (len(run.notes), "note"))
    return fold("What was read: " + ", ".join(count(size, noun) for size, noun in sizes), join(parts))
