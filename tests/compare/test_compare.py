"""One recorded run against another: `pytest tests/compare --before=FILE --here=FILE`."""


def test_claim(verdict, hold):
    """Each claim that the second record can decide."""
    hold([verdict])


def test_no_figure_moved(pair, case_id, hold):
    """Every figure lies within its tolerance of the first record."""
    hold(pair.figures(case_id))
