"""The fields of a spec as plain values."""


def jsonable(value: object) -> object:
    """Return the value of a field as JSON has it."""
    # 1 and 1.0 are the same option, so they have to be the same text and id.
    if isinstance(value, tuple):
        return [jsonable(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def column(value: object) -> object:
    """Return the value of a field as a table's column has it."""
    match value:
        case bool():
            return "on" if value else "off"
        case tuple():
            return ",".join(f"{item[0]}={item[1]}" if isinstance(item, tuple) else str(item) for item in value)
        case _:
            return value
