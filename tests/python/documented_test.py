"""Each public module, class and function of the Python package has a docstring, for help()."""

import ast
import pathlib
import unittest

PACKAGE = pathlib.Path(__file__).parents[2] / "python" / "weft"


def public_objects(node, name):
    """(name, whether there is a docstring) of a module or class, and of what is public in it."""
    yield name, ast.get_docstring(node) is not None
    for child in node.body:
        is_class = isinstance(child, ast.ClassDef)
        if not is_class and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if child.name.startswith("_"):
            continue
        inner = f"{name}.{child.name}"
        if is_class:
            yield from public_objects(child, inner)
        else:
            yield inner, ast.get_docstring(child) is not None


class Documented(unittest.TestCase):
    def test_all_that_is_public(self):
        found = []
        for path in sorted(PACKAGE.glob("*.py")):
            if path.stem == "__init__" or not path.stem.startswith("_"):
                name = "weft" if path.stem == "__init__" else f"weft.{path.stem}"
                found += public_objects(ast.parse(path.read_text(encoding="utf-8")), name)
        self.assertGreater(len(found), 200)
        self.assertEqual([name for name, has in found if not has], [])
        print(f"{len(found)} public objects have a docstring")


if __name__ == "__main__":
    unittest.main(verbosity=2)
