"""Units of stage 3: modules whose weights are gathered and freed together."""

from torch import nn


class Unit:
    """One module and the weights that are its own: those of units within it are theirs.

    `flats`: its weights by dtype.  While it is `whole` they have values, or are to have them when
    `coming` is over; `depth` of its forwards are going on; it is `open` in a backward that has
    entered it.
    """

    def __init__(self, name, module):
        self.name, self.module, self.within = name, module, set(module.modules())
        self.flats, self.coming = [], None
        self.whole, self.open, self.depth = True, False, 0

    @property
    def idle(self) -> bool:
        """Whether nobody is computing with it."""
        return not (self.open or self.depth)

    def begin(self, comm):
        """Its weights set out to be gathered, unless they are or have."""
        if not self.whole:
            self.whole, self.coming = True, comm.submit(_gather, self.name, self.flats)

    def wait(self):
        """Its weights are there."""
        if self.coming:
            coming, self.coming = self.coming, None
            coming.wait()
            for flat in self.flats:
                flat.restore()

    def free(self):
        """Its weights are gone."""
        if self.whole:
            self.wait()
            for flat in self.flats:
                flat.free()
            self.whole = False


def _gather(comm, name, flats):
    with comm.collective("gather", unit=name):
        for flat in flats:
            flat.gather(comm)


def choose_units(module, units=None) -> dict:
    """{parameters of `module`, in lists: the unit that they belong to}; the first unit is `module`.

    `units`: modules, or a rule that says of each whether it is one; none: the children of `module`,
    and those of lists of modules among them.  A parameter that several units use belongs to the
    innermost unit round all of these.  Raises ValueError for what cannot be a unit.
    """
    names = {part: name for name, part in module.named_modules()}
    if callable(units):
        chosen = [part for part in names if part is not module and units(part)]
    else:
        chosen = _children(module) if units is None else list(units)
    for part in chosen:
        _check(part, names, chosen)
    made = {part: Unit(names[part], part) for part in (module, *chosen)}
    owners = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        path = [made[part] for part in _path(module, name) if part in made]
        others = owners.get(parameter, path)
        owners[parameter] = [unit for unit in path if unit in others]
    return {unit: [p for p, path in owners.items() if path[-1] is unit] for unit in made.values()}


def _children(module) -> list:
    """Its children in the order of its definition, lists of modules opened, those with weights."""
    found = []
    for child in module.children():
        found += _children(child) if _is_container(child) else [child]
    return [part for part in dict.fromkeys(found) if any(True for _ in part.parameters())]


def _is_container(part) -> bool:
    """Whether it has no forward of its own, at which its weights could be gathered."""
    return type(part).forward is nn.Module.forward


def _check(part, names, chosen):
    if part not in names:
        raise ValueError(f"a unit is a part of the model, not {part!r}")
    if names[part] == "" or chosen.count(part) > 1:
        raise ValueError(f"a unit is named once, and the model is one anyway: {part!r}")
    if _is_container(part):
        raise ValueError(
            f"{names[part]} cannot be a unit: {type(part).__name__} has no forward of its own, "
            "before which its weights could be gathered; name its parts"
        )


def _path(module, name) -> list:
    """The modules that stand round the parameter `name`, outermost first."""
    path = [module]
    for part in name.split(".")[:-1]:
        path.append(path[-1].get_submodule(part))
    return path
