"""Device functions of kernels: elementary functions, early launch, prefetching."""

# pyright: reportMissingImports=false
from __future__ import annotations

from voxserve.kernels.backend import HAS_TRITON, INTERPRETED, tl, triton

if HAS_TRITON and not INTERPRETED:
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

    @triton.jit
    def sine(x):
        """The fast sine of the special-function unit: `tl.sin` costs three whole convolutions."""
        return libdevice.fast_sinf(x)

    @triton.jit
    def logarithm(x):
        """Natural logarithm to one unit in the last place, also next to 1 (`tl.log` is not)."""
        return libdevice.log(x)

    @triton.jit
    def error_function(x):
        """The error function."""
        return libdevice.erf(x)

    @triton.jit
    def wait_for_previous():
        """Waits until the kernel before this one has ended and its writes are visible."""
        gdc_wait()

    @triton.jit
    def start_next():
        """Lets the kernel behind this one launch; it waits for this one by itself."""
        gdc_launch_dependents()

    @triton.jit
    def prefetch_l2(pointers):
        """Asks for the cache lines at `pointers`; nothing waits for them."""
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
            "=r,l",
            [pointers],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )

else:

    @triton.jit
    def sine(x):
        """Sine, for the interpreter."""
        return tl.sin(x)

    @triton.jit
    def logarithm(x):
        """Natural logarithm, for the interpreter."""
        return tl.log(x)

    @triton.jit
    def error_function(x):
        """The error function, for the interpreter."""
        return tl.erf(x)

    @triton.jit
    def wait_for_previous():
        """The interpreter runs kernels one after another."""

    @triton.jit
    def start_next():
        """The interpreter runs kernels one after another."""

    @triton.jit
    def prefetch_l2(pointers):
        """The interpreter has no caches."""
