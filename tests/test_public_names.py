import inspect
from importlib import import_module
from pkgutil import iter_modules

import pytest

import normlab

FUNCTIONS = [name for name in normlab.__all__ if inspect.isroutine(getattr(normlab, name))]
SUBPACKAGES = sorted(module.name for module in iter_modules(normlab.__path__))


@pytest.mark.parametrize("name", normlab.__all__)
def test_a_public_name_stays_what_it_is(name: str) -> None:
    """Importing a subpackage sets its name in the package: a function of that name would be lost."""
    first = getattr(normlab, name)
    for module in SUBPACKAGES:
        import_module(f"normlab.{module}")
    assert getattr(normlab, name) is first


def test_no_function_has_the_name_of_a_module() -> None:
    assert not set(FUNCTIONS) & set(SUBPACKAGES)


def test_dir_and_star_are_the_public_names() -> None:
    assert dir(normlab) == sorted(normlab.__all__)
    assert len(set(normlab.__all__)) == len(normlab.__all__)


def test_every_public_name_says_what_it_is() -> None:
    undocumented = [name for name in FUNCTIONS if not inspect.getdoc(getattr(normlab, name))]
    assert not undocumented


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        normlab.swep  # noqa: B018
