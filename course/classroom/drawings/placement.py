"""Draw a placed graph in time: a lane for each device, and for each pair of them that sends."""

from course.classroom.timeline import Piece, lanes

COMPUTES, SENDS = "computes", "sends"


def draw(schedule, title, x="time (ms), simulated", *, unit_s=1e-3, axes=None):
    """The operations and transfers of a Schedule as bars with the operations' names, each in two
    lines (`three_0_0` is `three` over `0_0`), in units of `unit_s`; what takes no time has none.
    Returns the axes."""
    rows = {
        device: []
        for device in sorted(schedule.devices, key=lambda name: (len(str(name)), str(name)))
    }
    for name, device, *times in schedule.spans:
        _add(rows[device], COMPUTES, name, times, unit_s)
    for each in sorted(schedule.transfers, key=lambda each: (each.source, each.target)):
        row = rows.setdefault(f"{each.source} → {each.target}", [])
        _add(row, SENDS, each.operation, (each.start, each.end), unit_s)
    return lanes(rows, title, x, axes, alike=False)


def _add(row, what, name, times, unit_s):
    start, end = (time / unit_s for time in times)
    if end > start:
        row.append(Piece(what, start, end, name.replace("_", "\n", 1)))
