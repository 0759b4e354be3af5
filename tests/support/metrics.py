"""GET /metrics as numbers, read by the Prometheus project's own parser.

    before = Metrics.of(gateway)
    …
    self.assertEqual(Metrics.of(gateway).since(before)["sandbox_create_total", "created"], 1)
"""

from prometheus_client.parser import text_string_to_metric_families


class Metrics:
    """Samples by name and label values in the order of the text; `le` among them."""

    def __init__(self, samples):
        self.samples = samples

    @classmethod
    def of(cls, gateway):
        status, _, body = gateway.rest("GET", "//metrics", key="")
        if status != 200:
            raise AssertionError(f"/metrics: {status}")
        return cls.parse(body.decode())

    @classmethod
    def parse(cls, text):
        samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, *sample.labels.values())
                if key in samples:
                    raise AssertionError(f"{key} is there twice")
                samples[key] = sample.value
        return cls(samples)

    def __getitem__(self, key):
        return self.samples[key if isinstance(key, tuple) else (key,)]

    def since(self, before):
        return Metrics({key: value - before.samples[key] for key, value in self.samples.items()})

    def named(self, name):
        """What is not 0 of one name, by its label values (a lone one without its tuple)."""
        found = {key[1:]: value for key, value in self.samples.items() if key[0] == name and value}
        return {key[0] if len(key) == 1 else key: value for key, value in found.items()}
