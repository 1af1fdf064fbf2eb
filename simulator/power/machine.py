"""Power model of one inference server: the draw of a phase at full clock, its duration, and the cost of a limit.

Power above idle is proportional to the clock to the power of 1.3, prompt speed to 0.9 and token speed to 0.2. So a
limit is one number, the *share* of a phase's power above idle that it leaves. The speed is that share to the power of
0.9 / 1.3 or 0.2 / 1.3. A clock locked at a fraction f of the highest leaves f ** 1.3 to every phase; a limit in watts
leaves what fits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, column

POWER_EXPONENT = 1.3
"""Power above idle ∝ clock ** 1.3. Chosen: published fits are between 1.0 and 2.5; see docs/power-simulation.md."""
PROMPT_EXPONENT = 0.9
"""Prompt speed ∝ clock ** 0.9: computing prompts is compute-bound."""
TOKEN_EXPONENT = 0.2
"""Token speed ∝ clock ** 0.2: generating tokens is memory-bound (DVFS on A100: -37 % energy at -1.8 % time)."""


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A server whose GPUs work as one instance of a model. Watts are those of the whole server at its plug."""

    name: str
    gpus: int
    gpu_tdp_w: float
    other_w: float
    """Constant draw independent of the GPUs: fans at rest, CPUs, memory, network."""
    watts_per_gpu_watt: float
    """Plug watts per GPU watt: above 1 because of fans and losses of the supply."""
    idle_share: float
    """Fraction of the GPUs' TDP when idle."""
    highest_mhz: float
    lowest_mhz: float
    """Lowest clock; a limit in watts that would need a lower one is not kept."""
    prompt_tokens: FloatArray
    """Points of the next two tables, ascending."""
    prompt_s: FloatArray
    prompt_share: FloatArray
    """Fraction of the GPUs' TDP while a prompt of that length is computed."""
    batch: FloatArray
    """Points of the next two tables, ascending, from 1."""
    token_s: FloatArray
    """Time for one token of every request in the batch."""
    token_share: FloatArray
    slices: int = 1
    """Instances that serve apart from each other (MIG). One limit and one clock apply to all; the draw grows with the
    instances at work, and a prompt counts as tokens of its length in time, since it interrupts no other instance."""

    @property
    def overshoot(self) -> float:
        """Highest draw of the GPUs over their limit: measured peaks of prompts exceed TDP by up to 3 %."""
        return max(float(self.prompt_share.max()), 1.0)

    @property
    def _tdp_w(self) -> float:
        """Plug watts for all GPUs at TDP."""
        return self.gpus * self.gpu_tdp_w * self.watts_per_gpu_watt

    @property
    def idle_w(self) -> float:
        return self.other_w + self._tdp_w * self.idle_share

    @property
    def highest_w(self) -> float:
        """Highest draw in any phase at full clock."""
        return self.other_w + self._tdp_w * float(max(self.prompt_share.max(), self.token_share.max()))

    @property
    def least_share(self) -> float:
        """Fraction of a phase's power above idle that the lowest clock leaves."""
        return float((self.lowest_mhz / self.highest_mhz) ** POWER_EXPONENT)

    @property
    def floor_w(self) -> float:
        """Draw of the phase with the highest power at the lowest clock: no limit guarantees less."""
        return self.idle_w + self.least_share * (self.highest_w - self.idle_w)

    def prompt_seconds(self, tokens: FloatArray) -> FloatArray:
        """Time to compute prompts of these tokens at full clock; linear between the points on log scales."""
        return np.exp(np.interp(np.log(tokens), np.log(self.prompt_tokens), np.log(self.prompt_s)))

    def prompt_swing_w(self, tokens: FloatArray) -> FloatArray:
        """Power above idle while prompts of these tokens are computed at full clock."""
        share = np.interp(np.log(tokens), np.log(self.prompt_tokens), self.prompt_share)
        return self._tdp_w * (share - self.idle_share)

    def token_seconds(self, batch: int) -> float:
        return float(np.interp(np.log(batch), np.log(self.batch), self.token_s))

    def token_swing_w(self, batch: int) -> float:
        """Power above idle while a batch generates tokens at full clock."""
        return self.swing_w(float(np.interp(np.log(batch), np.log(self.batch), self.token_share)))

    def swing_w(self, share: float) -> float:
        """Power above idle at this fraction of the GPUs' TDP."""
        return self._tdp_w * (share - self.idle_share)

    def share_at(self, mhz: float) -> float:
        """Fraction of a phase's power above idle that a locked clock leaves."""
        return float((min(mhz, self.highest_mhz) / self.highest_mhz) ** POWER_EXPONENT)


def _column(*values: float) -> FloatArray:
    return column(values, np.float64)


DGX_A100 = Machine(
    name="DGX A100 serving BLOOM-176B",
    gpus=8,
    gpu_tdp_w=400.0,
    # Non-GPU power: 1500 W at rest and a quarter of the GPUs' power, so that GPUs draw about 60 % of a busy server, as
    # POLCA (arXiv 2308.12908) reports of its row; a full prompt draws 5.6 kW, its measured maximum is 5.7 kW.
    other_w=1500.0,
    watts_per_gpu_watt=1.25,
    idle_share=0.20,
    highest_mhz=1410.0,
    lowest_mhz=210.0,
    # Times and peak power of prompts, and time per token: means over the repetitions of bloom-176b on a100-80gb, 8-way
    # tensor parallel, in the splitwise-sim measurements (8f99e7d, MIT). They carry no power for batches of 64 (zeros).
    prompt_tokens=_column(128, 256, 512, 1024, 2048, 4096, 8192),
    prompt_s=_column(0.0773, 0.0992, 0.174, 0.290, 0.540, 1.355, 3.602),
    prompt_share=_column(0.69, 0.72, 0.88, 1.01, 1.02, 1.02, 1.03),
    batch=_column(1, 2, 4, 8, 16, 32),
    token_s=_column(0.0490, 0.0501, 0.0510, 0.0529, 0.0573, 0.0657),
    # The mean over a request is 0.635 of TDP at batch 1 and 3 % more at 16; its prompt is the hotter part.
    token_share=_column(0.60, 0.60, 0.60, 0.61, 0.62, 0.63),
)

DGX_H100 = replace(
    DGX_A100,
    name="DGX H100 serving BLOOM-176B",
    gpu_tdp_w=700.0,
    other_w=2500.0,
    highest_mhz=1980.0,
    # Times: the same measurements on h100-80gb. They carry no power there: prompts draw as on the A100; tokens as
    # Llama 3.1 405B on eight H100 (ml-energy, batch 8 to 32: 0.58 to 0.67 of TDP).
    prompt_s=_column(0.0484, 0.0511, 0.0765, 0.133, 0.258, 0.698, 1.530),
    token_s=_column(0.0362, 0.0370, 0.0380, 0.0381, 0.0409, 0.0460),
    token_share=_column(0.55, 0.56, 0.57, 0.58, 0.60, 0.67),
)
DGX_B200 = replace(
    DGX_H100,
    name="DGX B200 serving Llama 3.1 405B",
    gpu_tdp_w=1000.0,
    other_w=3500.0,
    # Tokens: Llama 3.1 405B on eight B200 (ml-energy, batch 8 to 128). Prompts: chosen, half the time of the H100's.
    prompt_s=DGX_H100.prompt_s / 2,
    batch=_column(8, 16, 32, 64, 128),
    token_s=_column(0.0291, 0.0294, 0.0295, 0.0308, 0.0365),
    token_share=_column(0.73, 0.76, 0.84, 0.92, 0.95),
)
A100_MIG = replace(
    DGX_A100,
    name="eight A100 in seven slices each",
    # A slice is a fifty-sixth of the server and serves a model of a fifty-sixth of the size at the same speed.
    batch=_column(1, 56),
    token_s=_column(0.0490, 0.0490),
    token_share=_column(0.20 + (0.635 - 0.20) / 56, 0.635),
    slices=56,
)
MACHINES: Mapping[str, Machine] = {
    "dgx-a100": DGX_A100,
    "dgx-h100": DGX_H100,
    "dgx-b200": DGX_B200,
    "a100-mig": A100_MIG,
}
