"""Makes vox_tiny.safetensors: codes, and the samples that the codec's training code makes of them.

`python make_vox_tiny.py FOLDER` with the folder of the model's training code (`model.py`,
`load_and_say.py`) and weights of the first model, whose codec is the one still served. Greedy, so
that no random numbers are involved, and with the codec's noise branch silenced.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

TEXT = "the kettle whistled while we were setting the table."
FRAMES = 5


def main(folder: Path) -> None:
    """Writes the goldens beside this file."""
    sys.path.insert(0, str(folder))
    import load_and_say
    import model as reference

    torch.set_num_threads(1)
    talker, codec = load_and_say.load(str(folder / "tinyvox_int8.safetensors"))
    ids = reference.enc_text(TEXT)
    codes = talker.generate(ids, FRAMES, t0=0, t1=0)
    samples = _decode(reference, codec, codes)
    goldens = {"codes": codes.to(torch.int32), "samples": samples}
    save_file(goldens, Path(__file__).with_name("vox_tiny.safetensors"), {"text": TEXT})


def _decode(reference, codec, codes: torch.Tensor) -> torch.Tensor:
    plain = codec.dec.spec
    codec.dec.spec = lambda x, e: plain(x, e, torch.zeros(*x.shape[:2], 481, 2))
    stream = reference.StreamDecoder(codec.dec, codec.q)
    return torch.cat([stream.push(codes), stream.flush()])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
