"""Tile sizes: large products are computed in tiles, so that memory does not grow with n²."""

# Entries of a tile of distances: 4 MiB in float32, 8 MiB in float64. Such tiles stay in the cache.
TILE_ENTRIES = 2**20
# Bytes of coordinate differences (b, m, d) held at a time.
DIFFERENCE_BYTES = 2**22


def tile_height(width: int, entries: int = TILE_ENTRIES) -> int:
    """The number of rows of this width that fit in a tile, at least one."""
    return max(1, entries // max(1, width))
