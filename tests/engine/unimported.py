"""A user's module that does not import."""

import a_package_that_nobody_has  # type: ignore[import-not-found]  # that is the point of it

__all__ = ["a_package_that_nobody_has"]
