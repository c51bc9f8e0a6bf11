"""Evaluates the conditions of `[alerts]` once a second, and raises an alert when one begins to hold.

Runs in the supervisor, so no viewer is needed; therefore the condition `lost`, which means that the supervisor is gone,
can never hold here. A viewer and `tputui wait` see it. Nothing in here may end or delay the loop of the supervisor.

No shell reads a command of a target: its words are split once, and a word that is exactly `$TPUTUI_ALERT` or another
variable of the alert is replaced. So the text of an alert, which contains names from the logs of a script, can never
become part of a command.

One thread per target, so that a target that hangs delays no other. A failed attempt is repeated after a growing pause;
only a bounded number of alerts waits. At the end of the run there is a deadline for everything that is left.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Full, Queue, SimpleQueue
from threading import Event
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tputui import __version__
from tputui import formatting as fmt
from tputui.diagnosis.diagnose import verdict_tests
from tputui.formatting import inert
from tputui.state import conditions
from tputui.state.conditions import Condition, InvalidCondition
from tputui.state.liveness import Liveness, assess
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, at_later_moment, build_snapshot
from tputui.supervise.escalation import STALL_MIN_S
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import redaction
from tputui.telemetry.codec import spell_non_finite
from tputui.telemetry.logged_values import class_of, first_of
from tputui.telemetry.redaction import masked_text
from tputui.telemetry.rundir import RUN_DIR_VARIABLE, Manifest

FORMS = "bell, command:PROGRAM ARGUMENTS, https://..., env:NAME, apprise:env:NAME"
PAYLOAD_VERSION = 1
COMMAND_TIMEOUT_S = 30.0
WEBHOOK_TIMEOUT_S = 10.0
OUTPUT_BYTES_MAX = 4_096
"""Output of a command that is written to the log of the supervisor."""
TARGETS_MAX = 16
_TEXT_CHARS_MAX = 2_000
_WHY_CHARS_MAX = 300
_POLL_S = 0.05
_PREFIX = "TPUTUI_ALERT"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_VARIABLE = re.compile(rf"\$(?:\{{({_PREFIX}\w*)\}}|({_PREFIX}\w*))", re.ASCII)
_RETRIED = frozenset({408, 425, 429})
"""Answers of the class "your fault" after which another attempt may succeed."""


class InvalidTarget(ValueError):
    """A text is not a target, or it cannot work; the message is one sentence."""


class DeliveryError(Exception):
    """An attempt failed; the message is one sentence without secrets."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        """`is_final`: another attempt would fail in the same way."""
        super().__init__(why)
        self.is_final = is_final


class AlertMessage(NamedTuple):
    t: float
    run: str
    run_dir: str
    host: str
    condition: str
    text: str
    state: str
    """State of the run, as in `tputui show`."""
    step: int
    epoch: int
    metrics: Mapping[str, float]
    """Newest values by `train.NAME` and `valid.NAME`."""

    def payload(self) -> bytes:
        """The JSON object that webhooks receive. Non-finite values are "NaN", "Infinity" and "-Infinity"."""
        fields = {"version": PAYLOAD_VERSION, **self._asdict(), "metrics": dict(self.metrics)}
        return msgspec.json.encode(spell_non_finite(fields))

    def variables(self) -> dict[str, str]:
        """The environment variables that commands receive."""
        values = {
            "": self.text,
            "_RUN": self.run,
            "_RUN_DIR": self.run_dir,
            "_CONDITION": self.condition,
            "_STATE": self.state,
            "_STEP": str(self.step),
            "_EPOCH": str(self.epoch),
            "_JSON": self.payload().decode(),
        }
        return {_PREFIX + name: value.replace("\0", "")[: 64 * _TEXT_CHARS_MAX] for name, value in values.items()}


class Target(NamedTuple):
    """A target. `kind` is what events and messages call it; they never contain its address."""

    kind: str
    """`bell`, `command`, `webhook` or `apprise`."""
    words: tuple[str, ...] = ()
    """The command, or the address of the webhook."""
    variable: str = ""
    """The environment variable with the address, if it is not in `words`."""

    def problem(self, environ: Mapping[str, str]) -> str | None:
        """Why it cannot work in this environment; None if it may."""
        if self.kind == "command":
            program = self.words[0]
            program_path = shutil.which(program, path=environ.get("PATH", os.defpath))
            return None if program_path else f'the program "{program}" is not in PATH, or not executable'
        if self.kind == "apprise" and importlib.util.find_spec("apprise") is None:
            return "the package apprise is not installed; pip install 'tputui[alerts]'"
        if self.variable:
            if not environ.get(self.variable):
                return f"the environment variable {self.variable} is not set"
            if self.kind == "webhook" and not _is_address(environ[self.variable]):
                return f"the environment variable {self.variable} does not contain an http or https address"
        return None

    def secrets(self, environ: Mapping[str, str]) -> list[str]:
        """Texts that must not appear in any message about it."""
        return [environ[self.variable]] if environ.get(self.variable) else []

    def deliver(
        self, message: AlertMessage, environ: Mapping[str, str], log: Callable[[str], None], stop: Event
    ) -> None:
        """Makes one attempt. Raises `DeliveryError`. `log` takes the output of a command; `stop` ends one."""
        try:
            if (why := self.problem(environ)) is not None:
                raise DeliveryError(why)
            if self.kind == "command":
                _run(self.words, message, environ, log, stop)
            elif self.kind == "webhook":
                _post(environ[self.variable] if self.variable else self.words[0], message)
            elif self.kind == "apprise":
                _notify(environ[self.variable], message)
        except DeliveryError as error:
            raise DeliveryError(self._without_secrets(str(error), environ), is_final=error.is_final) from None
        except Exception as error:  # whatever a library or the network does
            raise DeliveryError(self._without_secrets(f"{type(error).__name__}: {error}", environ)) from None

    def _without_secrets(self, text: str, environ: Mapping[str, str]) -> str:
        for secret in self.secrets(environ):
            # Messages of libraries may quote only a part of the address.
            for part in {secret, *(segment for segment in re.split(r"[/?&=@]", secret) if len(segment) >= 8)}:
                text = text.replace(part, redaction.MASK)
        return inert(redaction.masked_text(text))[:_WHY_CHARS_MAX]


def parse(text: str) -> Target:
    """Parses a target. Raises `InvalidTarget`; its message does not repeat a secret."""
    text = text.strip()
    if text == "bell":
        return Target("bell")
    if looks_secret(text):
        raise InvalidTarget(
            "this looks like a secret, and a run stores its configuration and command line; put the address into an "
            "environment variable and write env:NAME"
        )
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "command":
        return Target("command", _arguments_of(rest))
    if colon and scheme == "env":
        return Target("webhook", variable=_variable_of(rest))
    if colon and scheme == "apprise":
        if not rest.startswith("env:"):
            raise InvalidTarget(
                "addresses of apprise contain secrets; put it into a variable and write apprise:env:NAME"
            )
        return Target("apprise", variable=_variable_of(rest.removeprefix("env:")))
    if colon and scheme.lower() in ("http", "https"):
        if not _is_address(text):
            raise InvalidTarget(f'"{inert(text)}" is not a valid address')
        return Target("webhook", (text,))
    raise InvalidTarget(f'"{inert(text)}" is not a target; targets are {FORMS}')


def looks_secret(text: str) -> bool:
    """Whether a target contains a secret: a known token, credentials, or a part of an address that looks random."""
    if redaction.masked_text(text) != text:
        return True
    return "://" in text and any(redaction.looks_random(part) for part in re.split(r"[/?&=:@]", text))


def _arguments_of(text: str) -> tuple[str, ...]:
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidTarget(f'"command:{inert(text)}": {str(error).lower()}') from None
    if not arguments or not arguments[0]:
        raise InvalidTarget('"command:" needs a program, such as command:notify-send tputui "$TPUTUI_ALERT"')
    return arguments


def _variable_of(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise InvalidTarget("env: must be followed by the name of an environment variable, such as env:ALERT_URL")
    return text


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    is_plain = all("!" <= letter <= "~" for letter in text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain


def _run(
    command: tuple[str, ...], message: AlertMessage, environ: Mapping[str, str], log: Callable[[str], None], stop: Event
) -> None:
    """Runs a command in a session of its own, which is killed when its time is over or `stop` is set."""
    variables = message.variables()
    inherited = {name: value for name, value in environ.items() if name != RUN_DIR_VARIABLE}
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [_filled(word, variables) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**inherited, **variables},
                start_new_session=True,
            )
        except OSError as error:
            raise DeliveryError(f"{command[0]}: {error.strerror or error}") from None
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline and not stop.is_set():
            stop.wait(_POLL_S)
        is_late = process.poll() is None
        if is_late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0, os.SEEK_END)
        output.seek(max(0, output.tell() - OUTPUT_BYTES_MAX))
        printed = output.read(OUTPUT_BYTES_MAX).decode("utf-8", "replace").strip()
    for line in redaction.masked_lines(printed.splitlines()):
        log(inert(line))
    if is_late:
        raise DeliveryError(f"the command did not end within {COMMAND_TIMEOUT_S:g} s and was killed")
    if process.returncode < 0:
        raise DeliveryError(f"the command was ended by signal {-process.returncode}")
    if process.returncode:
        last = printed.splitlines()[-1] if printed else "no output"
        raise DeliveryError(f"the command ended with exit code {process.returncode}: {last}")


def _filled(argument: str, variables: Mapping[str, str]) -> str:
    match = _VARIABLE.fullmatch(argument)
    return variables.get(match[1] or match[2], "") if match else argument


def _post(address: str, message: AlertMessage) -> None:
    """Sends the alert as JSON. Redirects are not followed: they would send it to another server."""
    # Imported when the first alert is sent, so that supervisors start faster.
    from http.client import HTTPException
    from urllib import error, request

    opener = request.OpenerDirector()
    handlers = (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
    )
    for handler in handlers:
        opener.add_handler(handler())
    headers = {"Content-Type": "application/json", "User-Agent": f"tputui/{__version__}"}
    try:
        with opener.open(request.Request(address, message.payload(), headers), timeout=WEBHOOK_TIMEOUT_S):
            return
    except error.HTTPError as answer:
        code, reason = answer.code, str(answer.reason)
        answer.close()
        why = f"the server answered {code} {reason}"
        if 300 <= code < 400:
            why = f"the server answered {code}, a redirect, which is not followed; use the new address"
        raise DeliveryError(why, is_final=300 <= code < 500 and code not in _RETRIED) from None
    except error.URLError as failed:
        cause = failed.reason.strerror if isinstance(failed.reason, OSError) else None
        raise DeliveryError(f"no connection: {cause or failed.reason}") from None
    except TimeoutError:
        raise DeliveryError(f"no answer within {WEBHOOK_TIMEOUT_S:g} s") from None
    except HTTPException as failed:
        raise DeliveryError(f"not an HTTP answer ({type(failed).__name__})") from None


def _notify(address: str, message: AlertMessage) -> None:
    import apprise

    sender = apprise.Apprise()
    if not sender.add(address):
        raise DeliveryError("apprise does not know this kind of address", is_final=True)
    if not sender.notify(title=f"tputui {message.run}", body=message.text):
        raise DeliveryError("apprise reported that the alert was not sent")


CHECK_S = 1.0
"""Seconds between two evaluations."""
REARM_S = 60.0
"""Seconds for which a condition must be false before it may raise another alert."""
END_S = 10.0
"""Longest time for deliveries at the end of the run ..."""
END_TERMINATED_S = 2.0
"""... and if the host is going down: SIGTERM came, and the end event must still be written."""
CONDITIONS_MAX = 32
METRICS_MAX = 64
TABLE = "alerts"


class Trigger:
    """Hysteresis of one condition: raises once when it begins to hold, and again only after it has not held for
    `REARM_S`. The time is an argument."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._is_armed = True
        self._quiet_since: float | None = None
        """Since when the condition has not held, while it is not armed."""

    def check(self, holds: bool, tick: float) -> bool:
        """Whether to raise an alert now. `tick` is a monotonic time in seconds."""
        if holds:
            if not self._is_armed and self._quiet_since is not None and tick - self._quiet_since >= REARM_S:
                self._is_armed = True
            raised, self._is_armed, self._quiet_since = self._is_armed, False, None
            return raised
        if not self._is_armed and self._quiet_since is None:
            self._quiet_since = tick
        return False


class AlertRules(NamedTuple):
    """The table `[alerts]` of a run, checked."""

    conditions: list[Condition]
    targets: list[Target]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> AlertRules:
        """The alerts of a recorded configuration. Raises `InvalidTarget` and `InvalidCondition`."""
        table = config.get(TABLE)
        given = table if isinstance(table, Mapping) else {}
        on, targets = given.get("on") or (), given.get("targets") or ()
        texts, tests = list(dict.fromkeys(map(str, on)))[:CONDITIONS_MAX], verdict_tests()
        return cls(
            [conditions.parse(text, tests) for text in texts],
            [parse(str(text)) for text in targets][:TARGETS_MAX],
        )


def rules_of(config: Mapping[str, Any], host_index: int, log: Callable[[str], None]) -> AlertRules | None:
    """The alerts of a run; None if there are none. Those of a run on several hosts are raised by the first host."""
    try:
        rules = AlertRules.of(config)
    except (InvalidTarget, InvalidCondition) as error:
        log(f"there will be no alerts, because [alerts] is not valid: {error}")
        return None
    return rules if rules.conditions and host_index == 0 else None


class Alerts:
    """The alerts of a run. Not thread-safe."""

    def __init__(
        self,
        run_dir: Path,
        manifest: Manifest,
        rules: AlertRules,
        state: WorkerState,
        emit: Callable[[ev.Event], None],
        log: Callable[[str], None],
    ) -> None:
        """`emit` writes an event to the journal, `log` a line to the log of the supervisor, in any thread."""
        self._run_dir = run_dir.resolve()
        self._manifest = manifest
        self._state = state
        self._emit = emit
        self._triggers = [Trigger(condition) for condition in rules.conditions]
        self._rings = any(target.kind == "bell" for target in rules.targets)
        self._delivery = AlertDelivery(rules.targets, os.environ, log)
        self._due = 0.0
        self._stalled_since: float | None = None
        self._unseen = [condition for condition in rules.conditions if condition.metrics]
        """Conditions some of whose metrics have had no value so far, and that no warning has named."""
        self._built: tuple[object, Snapshot] | None = None

    def check(self, now: float, tick: float, *, silence: str | None = None) -> None:
        """Evaluates the conditions if it is time. `now` is unix time, `tick` a monotonic time. `silence` says for how
        long a command has printed nothing, if that is unusual; such a command counts as stalled."""
        self._report(self._delivery.results())
        if tick < self._due:
            return
        self._due = tick + CHECK_S
        self._evaluate(self._snapshot(now, self._liveness(now, tick, silence)), tick)

    def finish(self, ended: ev.RunEnded, tick: float, *, terminated: bool) -> None:
        """Raises the alerts of the end of the run, and waits a bounded time for all deliveries."""
        liveness = assess(self._state.state, {}, ended.t)
        self._evaluate(self._snapshot(ended.t, liveness), tick)
        self._report(self._delivery.finish(END_TERMINATED_S if terminated else END_S))

    def _liveness(self, now: float, tick: float, silence: str | None) -> Liveness:
        liveness = self._state.liveness(now)
        if silence is not None and liveness.condition == "running":
            return liveness._replace(condition="stalled", reason=silence)
        if liveness.condition != "stalled":
            self._stalled_since = None
            return liveness
        self._stalled_since = tick if self._stalled_since is None else self._stalled_since
        return liveness if tick - self._stalled_since >= STALL_MIN_S else liveness._replace(condition="running")

    def _snapshot(self, now: float, liveness: Liveness) -> Snapshot:
        state = self._state.state
        read = ({name: process.last_seq for name, process in state.processes.items()}, liveness)
        if self._built is not None and self._built[0] == read:
            return at_later_moment(self._built[1], state, liveness, now)
        context = ViewerContext(
            now=now,
            run=self._manifest.run,
            dir=str(self._run_dir),
            created=self._manifest.created,
            config=self._manifest.config,
        )
        snapshot = build_snapshot(state, context, liveness)
        self._built = (read, snapshot)
        return snapshot

    def _evaluate(self, snapshot: Snapshot, tick: float) -> None:
        for trigger in self._triggers:
            if trigger.check(trigger.condition.holds(snapshot), tick):
                self._raise(trigger.condition, snapshot)
        for condition in list(self._unseen):
            if missing := conditions.missing_metrics(condition, snapshot):
                text = masked_text(fmt.inert(f"alert {condition.text}: {missing}"))
                self._emit(ev.WarningRaised(t=snapshot.now, text=text))
            if missing or all(conditions.value(name, snapshot) is not None for name in condition.metrics):
                self._unseen.remove(condition)

    def _raise(self, condition: Condition, snapshot: Snapshot) -> None:
        text = masked_text(fmt.inert(sentence(condition, snapshot)))
        self._emit(
            ev.AlertRaised(t=snapshot.now, condition=condition.text, text=text, step=snapshot.steps, bell=self._rings)
        )
        self._delivery.send(
            AlertMessage(
                t=snapshot.now,
                run=snapshot.run,
                run_dir=snapshot.dir,
                host=socket.gethostname(),
                condition=masked_text(condition.text),
                text=text,
                state=snapshot.condition,
                step=snapshot.steps,
                epoch=snapshot.epoch,
                metrics=newest_metrics(snapshot),
            )
        )

    def _report(self, results: list[Result]) -> None:
        for result in results:
            self._emit(result)


def sentence(condition: Condition, snapshot: Snapshot) -> str:
    """The text of an alert: `digits-1: valid.loss > 3 (valid.loss 3.42) in epoch 3, step 1,200`."""
    place = f"epoch {snapshot.epoch}, step {snapshot.steps:,}" if snapshot.epoch else f"step {snapshot.steps:,}"
    if condition.text.lower() == snapshot.condition or (condition.text == "ended" and snapshot.condition in ENDED):
        reason = snapshot.condition_reason
        return f"{snapshot.run} {snapshot.condition}{f': {reason}' if reason else ''} ({place})"
    words = dict.fromkeys(word for word in condition.text.replace("(", " ").split() if word not in conditions.STATES)
    values = [(word, conditions.value(word, snapshot)) for word in words if word[:1].isalpha()]
    shown = ", ".join(f"{word} {fmt.number(value)}" for word, value in values if value is not None)
    return f"{snapshot.run}: {condition.text}{f' ({shown})' if shown else ''} in {place}"


def newest_metrics(snapshot: Snapshot) -> dict[str, float]:
    """The newest values of the metrics, at most `METRICS_MAX`, by `train.NAME` and `valid.NAME`."""
    measured = list(conditions.newest_values(snapshot))
    few = first_of(measured, METRICS_MAX, lambda metric: class_of(metric[0], metric[1]))
    return {f"{split}.{name}": value for name, split, value in few}


PENDING_MAX = 16
"""Alerts that wait for one target; a further one fails at once."""
PAUSES_S = (1.0, 4.0, 15.0, 60.0)
"""Pauses before the second and further attempts."""
LAST_PAUSE_S = 1.0
"""Longest pause once the run has ended."""
_STOP_S = 2.0
"""Time for the threads to end after the deadline."""

Result = ev.AlertDelivered | ev.AlertFailed


class AlertDelivery:
    def __init__(self, targets: Sequence[Target], environ: Mapping[str, str], log: Callable[[str], None]) -> None:
        """`log` takes the output of commands, in any thread."""
        self._results: SimpleQueue[Result] = SimpleQueue()
        self._senders = [_Sender(target, environ, log, self._results) for target in targets if target.kind != "bell"]

    def send(self, message: AlertMessage) -> None:
        """Delivers a message to every target, in the background."""
        for sender in self._senders:
            sender.send(message)

    def results(self) -> list[Result]:
        """What was delivered, or was given up, since the last call."""
        return [self._results.get() for _ in range(self._results.qsize())]

    def finish(self, within_s: float) -> list[Result]:
        """Waits until everything is delivered or given up, at most `within_s` seconds; returns the last results."""
        deadline = time.monotonic() + within_s
        for sender in self._senders:
            sender.hurry()
        for sender in self._senders:
            sender.join(deadline)
        for sender in self._senders:
            sender.abandon(within_s)
        return self.results()


class _Sender:
    """The thread of one target; it starts with the first alert."""

    def __init__(
        self, target: Target, environ: Mapping[str, str], log: Callable[[str], None], results: SimpleQueue[Result]
    ) -> None:
        self._target = target
        self._environ = environ
        self._log = log
        self._results = results
        self._queue: Queue[AlertMessage | None] = Queue(PENDING_MAX + 1)
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[int, AlertMessage] = {}
        """Messages without a result, by number."""
        self._numbers = 0
        self._why = ""
        """The error of the last attempt."""

    def send(self, message: AlertMessage) -> None:
        if self._queue.qsize() >= PENDING_MAX:
            why = f"{PENDING_MAX} alerts are already waiting for this target"
            self._results.put(
                ev.AlertFailed(t=time.time(), condition=message.condition, target=self._target.kind, why=why)
            )
            return
        with self._lock:
            self._numbers += 1
            self._open[self._numbers] = message
        self._queue.put(message)
        if self._thread is None:
            name = f"alerts to {self._target.kind}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Shortens pauses; the thread ends after the messages that are waiting."""
        self._hurry.set()
        if self._thread is not None:
            try:
                self._queue.put_nowait(None)
            except Full:
                return  # the deadline ends the thread

    def join(self, deadline: float) -> None:
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def abandon(self, within_s: float) -> None:
        """Gives up what is left."""
        self._stop.set()
        with self._lock:
            left, self._open = list(self._open.values()), {}
        last = f"; the last error: {self._why}" if self._why else ""
        why = f"not delivered within {within_s:g} s after the end of the run{last}"
        for message in left:
            self._results.put(
                ev.AlertFailed(t=time.time(), condition=message.condition, target=self._target.kind, why=why)
            )
        if left and self._thread is not None:
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set() and (message := self._queue.get()) is not None:
            number += 1
            result = self._result_of(message)
            with self._lock:
                # After `abandon` the message has a result already.
                if result is not None and self._open.pop(number, None) is not None:
                    self._results.put(result)

    def _result_of(self, message: AlertMessage) -> Result | None:
        """Attempts to deliver until that succeeds or the attempts are used up; None if the supervisor ends."""
        kind, attempts, self._why = self._target.kind, 0, ""
        while True:
            attempts += 1
            try:
                self._target.deliver(message, self._environ, self._log, self._stop)
                return ev.AlertDelivered(t=time.time(), condition=message.condition, target=kind, attempts=attempts)
            except DeliveryError as error:
                self._why = str(error)
                if error.is_final or attempts > len(PAUSES_S):
                    after = f" ({attempts} attempts)" if attempts > 1 else ""
                    return ev.AlertFailed(
                        t=time.time(), condition=message.condition, target=kind, why=f"{error}{after}"
                    )
            self._hurry.wait(PAUSES_S[attempts - 1])
            if self._hurry.is_set():
                self._stop.wait(LAST_PAUSE_S)
            if self._stop.is_set():
                return None
