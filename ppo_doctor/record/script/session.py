"""Follow a training script from one optimizer step to the next, and divide the steps into updates."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from ppo_doctor.record.guard import tell, tell_fault
from ppo_doctor.record.script import ratios
from ppo_doctor.record.script.aliases import Alias, alias_in
from ppo_doctor.record.script.built import Layers, Schedules
from ppo_doctor.record.script.graph import entries, leaves, loss_graph
from ppo_doctor.record.script.lines.of_update import broken_places, places_of
from ppo_doctor.record.script.lines.samples import left_line
from ppo_doctor.record.script.log import RunLog, line_of
from ppo_doctor.record.script.metrics import Batch, UpdateSeen, numbers_of
from ppo_doctor.record.script.movement import Movement
from ppo_doctor.record.script.odd_values import failed_call, of_no_numbers
from ppo_doctor.record.script.operation_mode import OperationMode
from ppo_doctor.record.script.operations import Operations
from ppo_doctor.record.script.options import WatchOptions
from ppo_doctor.record.script.places import DEEP, Places, Stack
from ppo_doctor.record.script.policy import PolicyWeights, gradient_norm, rate_of
from ppo_doctor.record.script.ring import Ring
from ppo_doctor.record.script.settings import passes_configured, settings_seen
from ppo_doctor.record.script.steps import Step
from ppo_doctor.record.script.updates import Budget, Rhythm, rhythm_of, starts

Tensor = Any

#: Bytes of one remembered value, and the most values that are remembered.
VALUE, MOST_VALUES = 4, 1 << 22
#: Updates at the start that are observed in any case; steps after which one that does not end is written.
FIRST, LONGEST_UPDATE = 2, 400
#: Each observed update is at this many times the steps of the one before.
RARER = 4
#: Share of all steps that are in a row at the end with a learning rate of 0, from which on this is written.
STANDING = 0.25
#: Steps without any ratio after which observation pauses.
PATIENCE = 50
#: Minibatches at the start of an update whose old log-probs are traced.
TRACED = 12
#: Innermost frames in which networks are looked for.
FRAMES = 6
#: Backward passes with a ratio in which settings are looked for.
LOOKS = 3
#: Most source files that are searched for settings.
FILES = 64


class Stopped(SystemExit):
    """Ends the script because `--stop` was given and everything wanted was observed."""


class Session:
    """Collects what the hooks and the operation mode see, and writes one record per observed update."""

    def __init__(self, options: WatchOptions, log: RunLog) -> None:
        from ppo_doctor.record.script.hooks import Hooks

        self.options, self.log = options, log
        self.done = False
        package = Path(__file__).resolve().parents[2]
        self.places = Places(options.folder, (f"{Path(torch.__file__).parent}{os.sep}", f"{package}{os.sep}"))
        self.ring = Ring(min(MOST_VALUES, options.memory // (4 * VALUE)))
        self.operations = Operations(self)
        self.steps, self.update = 0, 0
        self.step = Step(0)
        self.alias: Alias | None = None
        self._hooks = Hooks(self)
        self.mode = OperationMode(self.operation)
        self._begun = time.monotonic()
        self._budget = Budget()
        self._window: list[Step] = []
        self._whole = True
        self._next, self._left = 0, FIRST
        self._steps_per_update = 1
        self.policy = PolicyWeights()
        self._movement = Movement()
        #: the settings found so far
        self.config: dict[str, float | int] = {}
        self.schedules = Schedules(self.places)
        self.layers = Layers(self.places)
        self.clipped_at: Stack = ()
        self._batch = Batch()
        self._rollouts: list[frozenset[int]] = []
        self._ratio_seen = self._compiled = False
        self._idle = self._looked = self._modules = 0
        #: the latest steps in a row with a learning rate of 0, and the steps up to the latest record
        self._standing = self._written = 0
        self._own_files: tuple[str, ...] = ()
        self._stepping = self._idle_seen = False
        self._rhythm: Rhythm | None = None
        self._broken = self._nan_written = False

    # lifecycle

    def call(self, action: Callable[..., None], *args: Any) -> None:  # noqa: ANN401
        """Call a method; its fault ends the observation and never reaches the script."""
        if self._broken or (self.done and action != self.finish):
            self._let_go()
            return
        try:
            with np.errstate(all="ignore"), torch._C.DisableTorchFunction():
                action(*args)
        except Stopped:
            raise
        except Exception as fault:  # noqa: BLE001 - training goes on after any fault
            self._fail(fault)

    def _fail(self, fault: Exception) -> None:
        if os.environ.get("PPO_DOCTOR_DEBUG"):
            raise fault
        self._broken = True
        tell_fault("the observation ends, training goes on", fault)
        self._let_go()

    def start(self) -> None:
        """Install the hooks and begin to observe."""
        self._hooks.install()
        self.mode.observe()

    def see_failure(self) -> None:
        """Run the network that values which are no numbers made fail once more, if they were not seen to appear."""
        error = _error()
        call = failed_call(error) if error is not None and of_no_numbers(error) else None
        if call is not None and not (self.done or self.operations.odd.not_finite):
            self.mode.observe()
            try:
                with torch.no_grad():
                    call[0](*call[1], **call[2])
            except Exception as fault:  # noqa: BLE001 - the script has ended
                if type(fault) is not type(error):
                    tell_fault("the network that failed could not run once more", fault)

    def finish(self) -> None:
        """Write what is left, and remove all hooks."""
        self._let_go()
        error = _error()
        died = not isinstance(error, SystemExit | None)
        if died and self.step.has_loss:
            self._window.append(self.step)
        self._close_window(whole=not died)
        if self.update and self._written < self.steps and self._standing >= STANDING * self.steps:
            self.log.record(self.steps, self.update + 1, {"learning_rate": 0.0})
        if not self._nan_written:
            self._write_broken(error)
        self._unseen()

    def _write_broken(self, error: BaseException | None) -> None:
        """Write what broke outside the updates that were written: weights since then, or values before it failed."""
        broken = {"weights_nonfinite": float(self.policy.nonfinite()) if self.update else 0.0}
        if of_no_numbers(error) or (isinstance(error, Exception) and self.operations.odd.step == self.steps):
            broken["log_probs_nonfinite"] = 1.0
        if any(broken.values()):
            self.log.places(broken_places(self))
            self.log.record(self.steps, self.update + 1, {name: each for name, each in broken.items() if each})

    def _let_go(self) -> None:
        """Remove mode and hooks; inside an operation, where the mode is off its stack, the next hook removes both."""
        self.done = True
        self.step.release()
        self.operations.new_step()
        self.mode.rest()
        if not self.mode.entered:
            self._hooks.remove()

    def forked(self) -> None:
        """Let go in a child process, which is a copy of this one."""
        self.done = True
        self.mode.rest()

    # what the hooks and the mode see

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:  # noqa: ANN401
        """Take note of one operation."""
        if self._stepping:
            return
        try:
            self.operations.see(func, args, kwargs, result)
        except Exception as fault:  # noqa: BLE001 - training goes on after any fault
            self._fail(fault)

    def event(self, name: str, frame: FrameType) -> None:
        """Take note of an event between the steps."""
        self.step.events.append((name, self.places.stack(frame)))

    def optimizer_created(self, optimizer: Any, frame: FrameType) -> None:  # noqa: ANN401
        """Remember an optimizer and the line that made it."""
        self.policy.made(optimizer, self.places.stack(frame, DEEP))

    def built(self, parameter: Any, frame: FrameType) -> None:  # noqa: ANN401
        """Remember the line that gave a network a parameter, or copied one."""
        if parameter is not None:
            self.policy.built(parameter, self.places.stack(frame, DEEP))

    def clipped(self, bound: object, norm: object, frame: FrameType) -> None:
        """Take note of a call that clips gradients."""
        stack = self.places.stack(frame)
        self.step.events.append(("clip", stack))
        known = "max_grad_norm" in self.config and not self.step.ratios
        if isinstance(bound, int | float) and math.isfinite(bound) and not known:
            self.config["max_grad_norm"] = float(bound)
            self.clipped_at = stack
        if self.mode.observing and hasattr(norm, "item") and self.step.ratios and self.step.bound is None:
            self.step.grad_norm = float(norm.item())
            self.step.bound = float(bound) if isinstance(bound, int | float) else None

    def before_backward(self, losses: Sequence[Tensor], frame: FrameType) -> None:
        """Look for the ratio in the graph of a loss."""
        step = self.step
        step.has_loss, self._stepping = True, False
        if not self.mode.observing:
            return
        stack = self.places.stack(frame)
        step.events.append(("backward", stack))
        self._look_for_alias(frame)
        for loss in losses:
            graph = loss_graph(loss)
            if graph is None:
                continue
            self._compiled = self._compiled or graph.compiled
            found = ratios.of_graph(graph, stack)
            step.mark(entries(loss.grad_fn))
            if not found and ratios.are_weights(graph, step.dead_clamps, self.operations):
                step.dead_clamps.clear()
            if found:
                step.backward_place = stack
                self.configured(frame)
                step.leftover = step.leftover or self._left_over()
                step.unused_clamps += [where for node, where in step.clamps if node not in set(graph.nodes)]
                step.clamps.clear()
                step.ratios += found
            step.reached = step.reached or bool(found or self.policy.reached_by(loss))
            if loss.numel() == 1:
                step.losses.append(float(loss.detach()))
            ratios.note_reference(graph, found, step, self.ring)
            ratios.values_of(graph, found, step, self.ring if 0 < len(self._window) < LOOKS else None)
            ratios.note_cut(graph, found if len(self._window) < TRACED else [], step, self.operations)
            step.steep = step.steep or ratios.steep(graph)

    def after_backward(self) -> None:
        """Compute what needs the gradients of the loss by the ratios."""
        if self.step.ratios:
            ratios.complete(self.step, self, trace=len(self._window) < TRACED)

    def _look_for_alias(self, frame: FrameType) -> None:
        """Look for a second name of the policy where old log-probs are computed again, or are those of a reference."""
        if self.alias is not None or not self._window:
            return
        gaps = (each.reference_gap for each in (self.step, self._window[-1]))
        alike = any(gap is not None and gap <= ratios.ONE for gap in gaps) or bool(self.step.equal_at)
        origins = [each.origin for each in self._window[-1].ratios if each.origin is not None]
        again = any(not each.graded and each.last >= self.steps - 1 for each in origins)
        if again or (alike and self.steps):
            found = map(alias_in, self.places.own_frames(frame)[:FRAMES])
            self.alias = next((each for each in found if each is not None and (again or each.reference)), None)

    def before_step(self, optimizer: Any) -> None:  # noqa: ANN401
        """Take note of gradients and of the learning rate."""
        self._stepping = True
        if not (self.mode.observing or self.step.ratios):
            if self.policy.steps(optimizer, self.step.has_loss):
                self.step.learning_rate = rate_of(optimizer)
            return
        held = [p for group in optimizer.param_groups for p in group["params"]]
        self.policy.held.update((id(p), p) for p in held)
        self.policy.note_gradients(held)
        if self.step.ratios:
            self._know_policy(optimizer, held)
        if self.policy.steps(optimizer, self.step.has_loss):
            self.step.learning_rate = rate_of(optimizer)
            self.step.clipped_before = self.step.clipped_before or any(
                name == "clip" for name, _ in self._after_last_backward()
            )
            if self.mode.observing:
                self.operations.odd.see_gradients(held, self.step)
                self._movement.before_step(self.policy.weights.values() or held)
                if self.step.grad_norm is None:
                    self.step.grad_norm = gradient_norm([p for p in held if id(p) in self.policy.weights] or held)

    def after_step(self, optimizer: Any) -> None:  # noqa: ANN401
        """End a step of the policy."""
        self._stepping = False
        if not self.policy.steps(optimizer, self.step.has_loss):
            return
        step = self.step
        step.rounded = self._movement.after_step() if self.mode.observing else None
        step.release()
        self.steps += 1
        self.step = Step(self.steps)
        self.operations.new_step()
        self._ratio_seen = self._ratio_seen or bool(step.ratios)
        self._standing = self._standing + 1 if step.learning_rate == 0 else 0
        first = self.policy.steps_first(optimizer)  # after a warm start with another, say
        self._idle = 0 if first or step.ratios or step.dead_clamps else self._idle + self.mode.observing
        self._budget.step(time.monotonic(), observed=self.mode.observing)
        if self.mode.observing:
            self._window.append(step)
            self._divide()
        elif (self._is_next() or self._is_idle(step) or first) and not self.done:
            self.mode.observe()
            self._whole = False
        else:
            self.mode.rest()
        if self._idle >= PATIENCE:
            self._pause()
            self._next = RARER * self.steps
        self._bounded()

    def _is_next(self) -> bool:
        """Return whether the next update to observe has come, and what it costs has been earned."""
        return self.steps >= self._next and (bool(self.options.every) or self._budget.affords(self.update))

    def _is_idle(self, step: Step) -> bool:
        """Return whether a learning rate is 0 for the first time, which is worth a look."""
        first = step.learning_rate == 0 and not self._idle_seen
        self._idle_seen = self._idle_seen or first
        return first

    def _know_policy(self, optimizer: Any, held: Sequence[Tensor]) -> None:  # noqa: ANN401
        """Determine the policy's parameters, on which the ratio depends, and whether the optimizer holds them."""
        idle = self.policy.idle()
        if len(self._window) < FIRST or idle:
            identities = set().union(*(leaves(each.nodes.ratio) for each in self.step.ratios))
            if idle and not identities & self.policy.weights.keys():
                self.policy.replaced()
            self.policy.know(identities, {**self.operations.ran, **{id(p): p for p in held}})
        self.policy.held_by(optimizer, held)

    def _left_over(self) -> bool:
        """Return whether the policy has gradients although no backward pass reached it since its last step."""
        return bool(self.steps) and not self.step.reached and self.policy.has_leftover()

    def _after_last_backward(self) -> list[tuple[str, Stack]]:
        events = self.step.events
        last = max((n for n, (name, _) in enumerate(events) if name == "backward"), default=-1)
        return events[last + 1 :]

    # updates

    def _divide(self) -> None:
        """Write the updates that have ended."""
        begins = self._starts()
        if not self._whole:
            if not begins:
                return
            self._window, self._whole = self._window[begins[0] :], True
            self._movement.begin()
        elif len(begins) > 1:
            self._write(self._window[: begins[1]], at_latest_step=begins[1] == len(self._window) - 1)
            self._window = self._window[begins[1] :]
            self._movement.begin()
        elif self._left == 1 and self._rhythm is not None and len(self._window) == self._steps_per_update:
            # As long as the updates before, so its end is here: the next rollout need not be seen.
            self._write(self._window, at_latest_step=False)
            self._window = []
        elif len(self._window) >= LONGEST_UPDATE:
            self._write(self._window, at_latest_step=False, whole=False)
            self._window, self._left = [], 0
        if self._left <= 0 and self.options.every != 1:
            self._pause()

    def _starts(self) -> list[int]:
        """Return the steps of the window that are the first after a rollout; a whole window begins with one."""
        marks = starts(self._window, self.policy.entries(self.operations.entries), self._rhythm)
        begins = [n for n, begin in enumerate(marks) if begin or (n == 0 and self._whole)]
        return (
            begins if self._whole or self._rhythm is not None else [n for n in begins if n or self._window[0].sampled]
        )

    def _pause(self) -> None:
        self.mode.rest()
        begun = self._window[0].number if self._window and self._whole else self.steps
        self._window, self._idle = [], 0
        self.ring.clear()
        self._left = max(1, FIRST - self.update)
        self.operations.new_step()
        # Updates mostly have as many steps as the latest; the next one to observe is seen from its rollout on.
        length, every = self._steps_per_update, self.options.every
        apart = every - 1 if every else (RARER - 1) * begun // length - 1
        self._next = begun + max(1, apart) * length

    def _close_window(self, *, whole: bool) -> None:
        """Write the updates of a window that ends."""
        if not self._window:
            return
        begins = self._starts()
        for first, after in zip(begins, [*begins[1:], len(self._window)], strict=True) if self._whole else ():
            ended = whole or after < len(self._window)
            self._write(self._window[first:after], at_latest_step=False, whole=ended)
            self._movement.begin()
        self._window = []

    def _write(self, steps: list[Step], *, at_latest_step: bool, whole: bool = True) -> None:
        """Write the record of one update."""
        if not any(step.ratios or step.dead_clamps for step in steps):
            return
        self.update += 1
        self._left -= 1
        self._steps_per_update, self._written = max(1, len(steps)), steps[-1].number + 1
        self._rhythm = self._rhythm or rhythm_of(steps, self.policy.entries(self.operations.entries))
        moved = self._movement.end(at_latest_step=at_latest_step)
        seen = UpdateSeen(
            steps=steps,
            entries=self.operations.entries,
            policy=frozenset(self.policy.weights),
            moved=moved,
            matched=self.policy.matched(),
            ungraded=self.policy.ungraded_share(self.operations.ran_ever),
            frozen=self.operations.frozen_share(),
            alias=self.alias,
            number=self.update,
            before=self._batch,
            rollouts=tuple(self._rollouts),
            whole=whole,
            of_one=self.operations.odd.of_one,
            left=left_line(steps, self.places),
        )
        numbers = numbers_of(seen)
        self._nan_written = self._nan_written or any(math.isnan(each) for each in numbers.values())
        self.schedules.note(steps)
        self.config = settings_seen(steps) | self.config
        self.log.settings(self.config)
        self.log.places(places_of(seen, self))
        self.log.record(self._written, self.update, numbers)
        self._remember(seen)
        if self.options.live:
            tell(line_of(self.update, self._written, numbers))

    def _remember(self, seen: UpdateSeen) -> None:
        self._batch = seen.batch
        self._rollouts = [*self._rollouts, seen.rollout_rows()][-4:]
        self.policy.clear()

    def configured(self, frame: FrameType) -> None:
        """Find the configured number of passes in the variables of the script's frames, at the first steps."""
        if self._looked < LOOKS and not self.config.keys() & {"n_epochs", "target_kl"}:
            self._looked += 1
            self.config.update(passes_configured(self.places.own_frames(frame)))

    def own_files(self) -> tuple[str, ...]:
        """Return the user's source files that are loaded."""
        modules = list(sys.modules.values())
        if len(modules) != self._modules:
            files = [file for each in modules if (file := getattr(each, "__file__", None)) and self.places.is_own(file)]
            self._own_files = tuple(dict.fromkeys([self.options.script, *files]))[:FILES]
            self._modules = len(modules)
        return self._own_files

    def _bounded(self) -> None:
        """Let go when as much as was asked for has been observed."""
        options = self.options
        enough = options.updates is not None and self.update >= options.updates
        late = options.seconds is not None and time.monotonic() - self._begun >= options.seconds
        if not (enough or late) or self.done:
            return
        self._let_go()
        if late and not enough:
            self._close_window(whole=False)
        self._window = []
        self._unseen()
        if options.stop:
            raise Stopped(0)

    def _unseen(self) -> None:
        reasons = {}
        if not self._ratio_seen and self.steps:
            what = "the loss is compiled" if self._compiled else f"no loss of {self.steps} steps has one in its graph"
            reasons["ratio"] = f"no importance ratio was seen: {what}"
        if self._compiled:
            reasons["lines"] = "lines in compiled code, and what it computes, were not traced"
        self.log.unseen(reasons)


def _error() -> BaseException | None:
    """Return what the script fails with, or failed with."""
    return sys.exc_info()[1] or getattr(sys, "last_value", None)
