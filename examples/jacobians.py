"""Jacobians of parts of models: what a block does to changes, what a norm takes out, and growth with depth."""

import normlab as nl


def main() -> None:
    """Print what the Jacobians of a Pre-LN and a Post-LN model are like, beside what theory expects."""
    batch = nl.data.random_batch(batch=1, tokens=8, seed=1)
    for placement in ("pre", "post"):
        spec = nl.ModelSpec(placement=placement, depth=6, width=32)
        model = nl.build(spec, seed=0)
        parts = nl.jacobian.parts(model, batch)

        # A part is a function with a point; every measurement takes the two.
        block, norm = parts.block(1), parts.norm(1, "attn")
        spectrum = nl.jacobian.spectrum(block, block.point, k=None)
        print(
            f"{placement}: σ₁ of block 1 is {spectrum.values[0]:.2f}, its condition number {spectrum.condition():.0f}"
        )
        token = norm.token(3)
        print(f"  one token's norm has the rank {nl.jacobian.spectrum(token, token.point, k=None).rank} of 32")
        print(f"  J − J_outer (J_skip + J_update) is {nl.jacobian.decomposition(parts, 1, 'attn').gap:.0e} of J")

        with nl.jacobian.chain(parts) as blocks:
            growth = nl.jacobian.apjn(blocks, probes=32)
        theory = nl.theory.predict(spec, 1, 8).query("quantity == 'apjn' and layer == 0")["value"].item()
        print(f"  ‖∂x_L/∂x_0‖²/(n d) is {growth.value:.2f} ± {growth.se:.2f}; theory, over seeds: {theory:.2f}")


if __name__ == "__main__":
    main()
