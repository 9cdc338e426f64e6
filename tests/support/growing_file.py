"""The key of the intake, under the name of a module that several tests import it from."""

from __future__ import annotations

from support.project import KEY as KEY
