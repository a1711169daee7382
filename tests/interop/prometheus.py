"""A parser of the text format of Prometheus that accepts nothing that `promtool check metrics`
would refuse or complain about."""

import re

from harness import need

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_SAMPLE = re.compile(r"([a-z_0-9]+)(?:\{(.*)\})? ([-+0-9.e]+)\Z")
_LABEL = re.compile(r'([a-z_][a-z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|\Z)')
_ESCAPES = {r"\n": "\n", r"\"": '"', r"\\": "\\"}


def _labels(text):
    found, place = {}, 0
    while place < len(text):
        match = _LABEL.match(text, place)
        need(match, f"labels cannot be read: {text[place:]}")
        name, value, _ = match.groups()
        need(name not in found, f"the label {name} occurs twice: {text}")
        found[name] = re.sub(r'\\["\\n]', lambda each: _ESCAPES[each[0]], value)
        place = match.end()
    need(not text.endswith(","), f"a comma too many: {text}")
    return found


class Metrics:
    """The metrics of one text: each a type and a list of samples (labels, value)."""

    def __init__(self, text):
        need(text.endswith("\n"), "the last line has no end")
        self.types, self.samples, self._helped = {}, {}, None
        self._seen = set()
        for line in text.splitlines():
            self._line(line)

    def _line(self, line):
        if line.startswith("# HELP "):
            name, text = line[7:].split(" ", 1)
            need(_NAME.match(name) and text and name not in self.types, f"wrong help: {line}")
            self._helped = name
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            need(name == self._helped and name not in self.types, f"wrong place: {line}")
            need(kind in ("counter", "gauge"), f"wrong type: {line}")
            need(name.endswith("_total") == (kind == "counter"), f"wrong ending: {line}")
            self.types[name], self.samples[name] = kind, []
        else:
            self._sample(line)

    def _sample(self, line):
        match = _SAMPLE.match(line)
        need(match, f"a sample cannot be read: {line}")
        name, labels, value = match.groups()
        # All samples of a metric stand together, behind its type.
        need(self.types and name == list(self.types)[-1], f"wrong place: {line}")
        labels = _labels(labels or "")
        key = (name, frozenset(labels.items()))
        need(key not in self._seen, f"twice: {line}")
        self._seen.add(key)
        self.samples[name].append((labels, float(value)))

    def total(self, name, **labels):
        """The sum of the samples that have these labels."""
        return sum(value for have, value in self.samples[name]
                   if labels.items() <= have.items())
