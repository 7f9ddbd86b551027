"""Unique names: numbers, scopes, and as many steps as names."""

from relaxir.support.names import UniqueNames


class _Counting(set[str]):
    """A set that counts the questions."""

    asked = 0

    def __contains__(self, item: object) -> bool:
        self.asked += 1
        return super().__contains__(item)


def test_a_name_takes_one_step() -> None:
    names = UniqueNames()
    names.taken = counting = _Counting()
    assert [names.add("x") for _ in range(1000)][::333] == ["x", "x_333", "x_666", "x_999"]
    assert counting.asked < 2500


def test_taken_names_are_passed_over() -> None:
    names = UniqueNames(["x", "x0", "x2"], separator="", first=0)
    assert [names.add("x") for _ in range(3)] == ["x1", "x3", "x4"]
    assert names.add("y") == "y"


def test_released_names_are_given_again() -> None:
    names = UniqueNames()
    names.add("i")
    inner = [("i", names.add("i")) for _ in range(3)]
    inner.append(("j", names.add("j")))
    names.release(inner)
    assert names.add("i") == "i_1"
    assert names.add("j") == "j"


def test_copies_go_their_own_way() -> None:
    names = UniqueNames()
    names.add("x")
    other = names.copy()
    assert other.add("x") == names.add("x") == "x_1"
