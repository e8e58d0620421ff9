"""From a model to a verdict in a minute: build, record, sweep, judge."""

import normlab as nl


def main() -> None:
    """Print the stream's growth in one model, then what six seeds a depth say about two claims."""
    spec = nl.ModelSpec(placement="pre", norm="layernorm", depth=8, width=64)
    model = nl.build(spec, seed=0)
    tokens, targets = nl.data.text_batch(batch=4, tokens=64, seed=0)
    with nl.record(model) as recorder:
        model.loss(tokens, targets).backward()
    table = recorder.table()
    rms = table[(table["site"] == "stream") & (table["quantity"] == "rms") & (table["sublayer"] != "attn")]
    print(rms[["layer", "sublayer", "value"]].to_string(index=False))

    specs = nl.grid(placement=["pre", "post"], depth=[4, 8, 16, 32], width=64)
    sweep = nl.sweep(specs, seeds=range(6), data=nl.data.Text(batch=4, tokens=32))
    for claim in ("preln-grad-shrinks-with-depth", "postln-output-grad-large"):
        print(nl.claims.judge(claim, sweep).cite())


# Worker processes import this file; without this line each would start a sweep of its own.
if __name__ == "__main__":
    main()
