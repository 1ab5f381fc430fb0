"""pyhf on its JAX backend: a binned likelihood with shape uncertainties, fits, CLs, upper limits; x64."""

import jax
import numpy as np
import pyhf

SPEC = {
    "channels": [
        {
            "name": "signal_region",
            "samples": [
                {
                    "name": "signal", "data": [2.0, 6.0, 11.0, 4.0],
                    "modifiers": [
                        {"name": "mu", "type": "normfactor", "data": None},
                        {"name": "lumi", "type": "lumi", "data": None},
                    ],
                },
                {
                    "name": "background", "data": [48.0, 52.0, 45.0, 30.0],
                    "modifiers": [
                        {"name": "scale", "type": "normsys", "data": {"hi": 1.1, "lo": 0.92}},
                        {
                            "name": "shape", "type": "histosys",
                            "data": {"hi_data": [50.0, 55.0, 46.0, 31.0], "lo_data": [46.0, 49.0, 44.5, 28.0]},
                        },
                        {"name": "mc", "type": "staterror", "data": [3.0, 4.0, 3.0, 2.0]},
                    ],
                },
            ],
        },
        {
            "name": "control_region",
            "samples": [
                {
                    "name": "background", "data": [210.0, 180.0],
                    "modifiers": [
                        {"name": "scale", "type": "normsys", "data": {"hi": 1.05, "lo": 0.96}},
                        {"name": "uncorrelated", "type": "shapesys", "data": [12.0, 9.0]},
                    ],
                }
            ],
        },
    ],
    "parameters": [{"name": "lumi", "auxdata": [1.0], "sigmas": [0.02], "bounds": [[0.5, 1.5]], "inits": [1.0]}],
    "measurements": [{"name": "m", "config": {"poi": "mu", "parameters": []}}],
}  # fmt: skip


def run():
    jax.config.update("jax_enable_x64", True)
    pyhf.set_backend("jax", pyhf.optimize.scipy_optimizer(tolerance=1e-10))
    model = pyhf.Model({k: SPEC[k] for k in ("channels", "parameters")}, poi_name="mu")
    observed = [50.0, 63.0, 52.0, 31.0, 205.0, 186.0]
    data = observed + model.config.auxdata
    best, twice_nll = pyhf.infer.mle.fit(data, model, return_fitted_val=True)
    fixed = pyhf.infer.mle.fixed_poi_fit(1.5, data, model)
    cls, band = pyhf.infer.hypotest(1.0, data, model, test_stat="qtilde", return_expected_set=True)
    limit, expected = pyhf.infer.intervals.upper_limits.upper_limit(data, model, np.linspace(0, 5, 11))
    parameters = pyhf.tensorlib.astensor(model.config.suggested_init())
    hessian = jax.hessian(lambda p: model.logpdf(p, pyhf.tensorlib.astensor(data))[0])(parameters)
    return {
        "best": best, "twice_nll": twice_nll, "fixed": fixed, "cls": cls, "band": np.stack(band), "limit": limit,
        "expected": np.stack(expected), "hessian": hessian,
    }  # fmt: skip
