"""Every error the service raises on purpose, and what each means for the run.

    Exception
    └── FleetgaugeError              logged as one line, without a traceback
        ├── ConfigurationError       a person must change a setting, a secret or a permission: exit code 2
        │   └── NotConfiguredError   a required setting, or the past, is absent: skipped under `all`
        ├── SourceError              what a collector reads could not be read
        ├── DeadlineExceededError    the collector's time is over
        ├── DeclinedError            the person at the terminal declined: skipped
        ├── StateError               the state document could not be read or written: partial
        └── DeliveryError            Datadog did not accept what was sent
            └── RefusedError         and never will: the key, the site or the payload is wrong

Anything else that escapes a collector is a defect: it is reported with its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence


class FleetgaugeError(Exception):
    """An expected failure. The message names what failed, on what, why, and the fix.

    `details` are what it is about, where that is a list.
    """

    configuration = False  # whether a person must correct a setting, a secret or a permission

    def __init__(self, message: str, *, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = details


class ConfigurationError(FleetgaugeError):
    """A setting, secret or permission is wrong, and a person must correct it."""

    configuration = True


class NotConfiguredError(ConfigurationError):
    """A required setting has no value anywhere, or a collector has no past to backfill."""


class SourceError(FleetgaugeError):
    """A source could not be read now; a later run may succeed."""


class DeadlineExceededError(FleetgaugeError):
    """The one deadline that all requests of a collector share has passed; `--timeout` sets it."""


class DeclinedError(FleetgaugeError):
    """What was about to be sent was shown, and not agreed to."""


class StateError(FleetgaugeError):
    """The state document could not be read or written; the run continues without it, as partial."""


class DeliveryError(FleetgaugeError):
    """The intake did not accept a payload; what was accepted before it stays accepted."""


class RefusedError(DeliveryError):
    """The intake will never accept this: retrying cannot help.

    `status` is that of the response, and `problems` are the messages of its error document; the response of a
    proxy has none. 401, 403 and 404 make it an error of the configuration.
    """

    def __init__(self, message: str, *, status: int | None = None, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.problems = problems
        self.configuration = status in {401, 403, 404}  # the key, the permission or the address


def combine_errors(errors: Sequence[FleetgaugeError]) -> FleetgaugeError:
    """Return several errors as one: a ConfigurationError where any of them is one, else a SourceError.

    A single error is returned as it is, with its class and details. There must be at least one.
    """
    if len(errors) == 1:
        return errors[0]
    is_configuration = any(error.configuration for error in errors)
    message = "; ".join(dict.fromkeys(map(str, errors)))
    return ConfigurationError(message) if is_configuration else SourceError(message)
