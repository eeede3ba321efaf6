"""Elementary functions inside kernels: the GPU's own where Triton's are slow or coarse."""

from __future__ import annotations

from voxserve.kernels.backend import HAS_TRITON, INTERPRETED, tl, triton

if HAS_TRITON and not INTERPRETED:
    from triton.language.extra import libdevice  # pyright: ignore[reportMissingImports]

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
