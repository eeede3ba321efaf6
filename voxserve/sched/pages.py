"""KV pages as ints: handed out at admission for the worst case, returned together."""

from __future__ import annotations


class PageAllocator:
    """Free list of `num_pages` pages; every page has at most one owner."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # at first the lowest goes out first
        self._taken: set[int] = set()

    @property
    def num_free(self) -> int:
        """Pages without an owner."""
        return len(self._free)

    def take(self, count: int) -> tuple[int, ...]:
        """Hands out `count` pages; the caller has checked `num_free`."""
        assert count <= len(self._free), f"{count} pages asked, {len(self._free)} free"
        pages = tuple(self._free.pop() for _ in range(count))
        self._taken.update(pages)
        return pages

    def give_back(self, pages: tuple[int, ...]) -> None:
        """Takes pages back; one that is not out is a bug."""
        for page in pages:
            assert page in self._taken, f"page {page} came back but was not out"
            self._taken.remove(page)
            self._free.append(page)


def pages_for(num_tokens: int, page_tokens: int) -> int:
    """Pages that hold `num_tokens` tokens."""
    return -(-num_tokens // page_tokens)
