"""Leadtime's policy for Ray Serve: Serve's own decision, or Leadtime's floor where that is higher.

One file without dependencies but Ray's. Named in a config file, it must be importable where Ray's
head runs (Ray's dashboard imports it to check the config): copy it into the image, or install
`leadtime` there. Named in the application's code (`AutoscalingPolicy(policy_function=
LeadtimePolicy, policy_kwargs=...)`), it travels with the application, by `runtime_env` too, unless
the config file lists that deployment: Ray then imports it on the head as well.

In a config file:

    autoscaling_config:
      min_replicas: 1
      max_replicas: 16
      target_ongoing_requests: 4
      upscale_delay_s: 0        # Serve would hold a raised floor back by these; the policy itself
      downscale_delay_s: 0      # holds back Serve's own decision, by the two below
      policy:
        policy_function: controller.inserve.policy:LeadtimePolicy
        policy_kwargs:
          url: http://leadtime:8199
          upscale_delay_s: 30
          downscale_delay_s: 600

A floor is in force until it is older than the time to live that came with it; from then on Serve
decides alone, from the target that stands and with its own delays. The token, where Leadtime asks
for one, comes from LEADTIME_FLOOR_TOKEN or the file named by LEADTIME_FLOOR_TOKEN_FILE in the
environment of Serve's controller (`ray start` on the head node), as Serve shows `policy_kwargs` to
everyone.
"""

import json
import logging
import math
import os
import random
import ssl
import threading
import time
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray.serve.autoscaling_policy import replica_queue_length_autoscaling_policy

FLOORS = "/api/v1/floors"
TOKEN_VARIABLE = "LEADTIME_FLOOR_TOKEN"
TOKEN_FILE_VARIABLE = "LEADTIME_FLOOR_TOKEN_FILE"
LONGEST_TTL_S = 3600.0
LONGEST_PAUSE_S = 5.0
TIMEOUT_S = 3.0
MOST_BYTES = 1_000_000
MOST_REPLICAS = 10_000
# Two readings of a clock differ by a little less than the delay between them.
ROUNDING_S = 1e-6


class LeadtimePolicy:
    """Called by Serve's controller ten times a second; never waits for anything.

    `url` is one daemon or several, of which the one that leads answers; or `file` is the path that
    the daemon writes floors to. Delays and factors are those of Serve's own decision and mean
    what they mean in `autoscaling_config`.
    """

    def __init__(
        self,
        url: str | Sequence[str] = (),
        file: str | None = None,
        every_s: float = 0.25,
        ca_file: str | None = None,
        upscale_delay_s: float = 30.0,
        downscale_delay_s: float = 600.0,
        downscale_to_zero_delay_s: float | None = None,
        upscaling_factor: float = 1.0,
        downscaling_factor: float = 1.0,
    ) -> None:
        urls = [url] if isinstance(url, str) else list(url)
        if bool(urls) == bool(file):
            raise ValueError("LeadtimePolicy needs exactly one of url and file in policy_kwargs")
        for each in urls:
            if not each.startswith(("http://", "https://")):
                raise ValueError(
                    f"LeadtimePolicy: url {each!r} must begin with http:// or https://"
                )
        self._make = (
            (lambda: _Filed(Path(str(file)))) if file else (lambda: _Fetched(urls, ca_file))
        )
        self._every_s = max(0.1, every_s)
        self._native = _Native(
            upscale_delay_s,
            downscale_delay_s,
            downscale_to_zero_delay_s,
            upscaling_factor,
            downscaling_factor,
        )
        self._floor: _Floor | None = None
        self._alone: int | None = None
        self._clock: Callable[[], float] = time.monotonic

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        """The target for a deployment (an `AutoscalingContext`), and no state for Serve to keep."""
        if self._floor is None:
            _complain(ctx)
            self._floor = self._made(ctx)
        now_s = self._clock()
        floor = self._floor.fresh(now_s)
        if floor is None and self._alone is not None:
            # Serve takes over from the target that stands, and its delays begin now.
            self._native.restart()
            self._alone = None
        before = ctx.target_num_replicas if self._alone is None else self._alone
        most: int = ctx.capacity_adjusted_max_replicas
        alone = self._native.decide(ctx, before, now_s)
        alone = min(max(alone, ctx.capacity_adjusted_min_replicas), most)
        if floor is None:
            return alone, {}
        self._alone = alone
        return max(alone, floor), {}

    def _made(self, ctx: Any) -> "_Floor":
        floor = self._make().of(ctx.app_name, ctx.deployment_name)
        thread = threading.Thread(
            target=_follow, args=(weakref.ref(floor), self._every_s), name="leadtime", daemon=True
        )
        thread.start()
        return floor


class _Native:
    """Serve's own decision: its policy, its factors, its delays, from a target given.

    Without a floor it decides what Serve would, tick by tick.
    """

    def __init__(
        self, up_s: float, down_s: float, to_zero_s: float | None, up: float, down: float
    ) -> None:
        self._up_s, self._down_s = up_s, down_s
        self._to_zero_s = down_s if to_zero_s is None else to_zero_s
        self._up, self._down = up, down
        self._direction = 0
        self._since_s = 0.0

    def restart(self) -> None:
        """Let the delays begin anew."""
        self._direction = 0

    def decide(self, ctx: Any, target: int, now_s: float) -> int:
        """The target after this tick, if it is `target` before."""
        desired = self._desired(ctx, target)
        if ctx.current_num_replicas == 0 and desired > 0:
            return desired
        direction = (desired > target) - (desired < target)
        if direction != self._direction:
            self._direction, self._since_s = direction, now_s
        if direction == 0:
            return target
        delay_s = self._up_s
        if direction < 0:
            delay_s = self._to_zero_s if target == 1 else self._down_s
            desired = desired if target == 1 else max(1, desired)
        if now_s - self._since_s + ROUNDING_S < delay_s:
            return target
        self._direction = 0
        return desired

    def _desired(self, ctx: Any, target: int) -> int:
        running: int = ctx.current_num_replicas
        if running == 0:
            return target
        wish, _ = replica_queue_length_autoscaling_policy(ctx)
        more = wish - running
        scaled: int = math.ceil(running + (self._up if more > 0 else self._down) * more)
        if math.ceil(wish) < running and scaled == running:
            scaled -= 1
        return max(0, scaled)


class _Floor:
    """The newest floor of one deployment and until when it holds, by the monotonic clock."""

    def __init__(self) -> None:
        self._held: tuple[int, float] | None = None
        self._names = ("", "")

    def of(self, application: str, deployment: str) -> "_Floor":
        """The same, for a deployment."""
        self._names = (application, deployment)
        return self

    def fresh(self, now_s: float) -> int | None:
        """The floor in force; None where there is none or it is too old."""
        held = self._held
        return held[0] if held is not None and now_s < held[1] else None

    def read(self) -> None:
        """Look for a newer one; raises OSError or ValueError when none can be had."""
        raise NotImplementedError

    def _take(self, document: Any, age_s: float, now_s: float) -> None:
        ttl_s = float(document["ttl_s"])
        if not 0 < ttl_s <= LONGEST_TTL_S or not age_s >= 0:
            raise ValueError(f"ttl_s {ttl_s} or age_s {age_s} makes no sense")
        application, deployment = self._names
        replicas = document["floors"].get(application, {}).get(deployment)
        if replicas is None:
            self._held = None
            return
        if type(replicas) is not int or not 0 <= replicas <= MOST_REPLICAS:
            raise ValueError(f"a floor of {replicas!r} makes no sense")
        self._held = replicas, now_s + ttl_s - age_s


class _Fetched(_Floor):
    """Over HTTP, from the first of several daemons that leads."""

    def __init__(self, urls: Sequence[str], ca_file: str | None) -> None:
        super().__init__()
        self._urls = list(urls)
        # Neither proxies of the environment nor redirections, which would carry the token along.
        self._opener = urllib.request.OpenerDirector()
        context = ssl.create_default_context(cafile=ca_file)
        for handler in (
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=context),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):
            self._opener.add_handler(handler)

    def read(self) -> None:
        """Ask the daemon that answered last, then the others."""
        problems = []
        for url in list(self._urls):
            try:
                self._ask(url)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                problems.append(f"{url}: {error}")
            else:
                self._urls.sort(key=lambda each: each != url)
                return
        raise OSError("; ".join(problems))

    def _ask(self, url: str) -> None:
        application, deployment = self._names
        query = urllib.parse.urlencode({"application": application, "deployment": deployment})
        request = urllib.request.Request(f"{url.rstrip('/')}{FLOORS}?{query}")
        token = _token()
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        asked_s = time.monotonic()
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(MOST_BYTES)
        document = json.loads(body)
        self._take(document, float(document["age_s"]), asked_s)


class _Filed(_Floor):
    """From a file. Its time is another host's, so it is fresh while it goes on changing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._written_s: float | None = None

    def read(self) -> None:
        """Read the file anew."""
        document = json.loads(self._path.read_bytes()[:MOST_BYTES])
        written_s = float(document["at_s"])
        if written_s == self._written_s:
            return
        age_s = 0.0 if self._written_s is not None else max(0.0, time.time() - written_s)  # noqa: TID251
        self._take(document, age_s, time.monotonic())
        self._written_s = written_s


def _follow(floor: "weakref.ref[_Floor]", every_s: float) -> None:
    """Read again and again, more seldom while it fails, until nobody wants the floor."""
    failures, said = 0, ""
    while (held := floor()) is not None:
        try:
            held.read()
            if failures:
                _log().info("Leadtime's floor can be read again")
            failures, said = 0, ""
        except Exception as error:
            failures += 1
            if str(error) != said:
                said = str(error)
                _log().warning("Leadtime's floor cannot be read: %s", said)
        del held
        pause_s = min(every_s * 2.0 ** min(failures, 10), LONGEST_PAUSE_S)
        time.sleep(pause_s * random.uniform(0.8, 1.0))


def _token() -> str:
    """Read at every request, so that it can be changed while Serve runs."""
    path = os.environ.get(TOKEN_FILE_VARIABLE)
    if path:
        return Path(path).read_text(encoding="utf-8").strip()
    return os.environ.get(TOKEN_VARIABLE, "").strip()


def _complain(ctx: Any) -> None:
    """Say what in the deployment's config would hold back or distort a raised floor."""
    config = ctx.config
    wrong = [
        f"{name}: {getattr(config, name)} (set {right})"
        for name, right in (("upscale_delay_s", 0), ("downscale_delay_s", 0))
        if getattr(config, name, right) != right
    ]
    wrong += [
        f"{name} (leave it out)"
        for name in ("upscaling_factor", "downscaling_factor")
        if getattr(config, name, None) not in (None, 1.0)
    ]
    if wrong:
        _log().warning(
            "autoscaling_config of %s/%s changes Leadtime's floor: %s; give those to policy_kwargs",
            ctx.app_name,
            ctx.deployment_name,
            ", ".join(wrong),
        )


def _log() -> logging.Logger:
    return logging.getLogger("ray.serve")
