"""Compare answers with Gravitino's OpenAPI documents: ``python openapi_program.py openapi.yaml < exchanges.jsonl``.

Each line is an exchange: method, path, status, type, answer. It writes a line for each answer that the documents do not
allow. Its Python is that of ``make gravitino-spec``; it imports nothing of this project.

In two points the documents are stricter than Gravitino's own server, and its clients. The words of an enumeration count
in either case: the server writes them in lower case. One of several schemas is any of them: an answer with names alone
fits two, because nothing in them is required.
"""

# mypy: ignore-errors
import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import yaml
from openapi_schema_validator import OAS30Validator


class Documents:
    """The documents, with references between their files."""

    def __init__(self, root):
        self.root, self.files = Path(root).resolve(), {}
        self.definitions, self.names = {}, {}

    def load(self, file):
        """Return the content of a file."""
        if file not in self.files:
            self.files[file] = yaml.safe_load(file.read_text(encoding="utf-8"))
        return self.files[file]

    def follow(self, node, file):
        """Return the node that a reference leads to, and its file."""
        while isinstance(node, dict) and "$ref" in node:
            name, _, pointer = node["$ref"].partition("#")
            file = (file.parent / name).resolve() if name else file
            node = self.load(file)
            for part in pointer.strip("/").split("/"):
                node = node[unquote(part).replace("~1", "/").replace("~0", "~")]
        return node, file

    def schema(self, node, file):
        """Return a schema without references to files: what they lead to is among the definitions."""
        if isinstance(node, list):
            return [self.schema(one, file) for one in node]
        if not isinstance(node, dict):
            return node
        if isinstance(node.get("$ref"), str):
            target, of = self.follow(node, file)
            name = self.names.get((id(target), of))
            if name is None:
                name = self.names[id(target), of] = f"d{len(self.names)}"
                self.definitions[name] = self.schema(target, of)
            return {"$ref": f"#/definitions/{name}"}
        # A discriminator names its schemas by references that a validator would have to follow by itself
        made = {key: self.schema(value, file) for key, value in node.items() if key != "discriminator"}
        if isinstance(made.get("oneOf"), list):
            made["anyOf"] = made.pop("oneOf")
        if isinstance(made.get("enum"), list):
            words = [one for one in made["enum"] if isinstance(one, str)]
            made["enum"] = [*made["enum"], *map(str.lower, words), *map(str.upper, words)]
        return made

    def operation(self, method, path):
        """Return the operation of a request, and its file; the path with the fewest parameters counts."""
        fitting = []
        for template, node in self.load(self.root)["paths"].items():
            pattern = re.sub(r"\{\w+\}", "[^/]+", template)
            if re.fullmatch(pattern, path):
                fitting.append((template.count("{"), template, node))
        _, _, node = min(fitting, key=lambda one: one[:2])
        item, file = self.follow(node, self.root)
        return self.follow(item[method.lower()], file)

    def problems(self, one):
        """Yield what the documents do not allow in an exchange."""
        try:
            operation, file = self.operation(one["method"], one["path"])
        except (KeyError, ValueError):
            yield "the documents have no such operation"
            return
        answers = operation["responses"]
        status = str(one["status"])
        found = next(
            (answers[word] for word in (status, f"{status[0]}xx", f"{status[0]}XX", "default") if word in answers), None
        )
        if found is None:
            yield f"there is no answer {status}; there are: {', '.join(map(str, answers))}"
            return
        answer, file = self.follow(found, file)
        content = answer.get("content", {})
        if one["type"] not in content:
            yield f"the type {one['type']} is none of {', '.join(content)}"
            return
        schema = self.schema(content[one["type"]]["schema"], file)
        for error in OAS30Validator({**schema, "definitions": self.definitions}).iter_errors(one["answer"]):
            for inner in _innermost(error):
                yield f"{'.'.join(map(str, inner.absolute_path)) or 'the answer'}: {inner.message[:200]}"


def _innermost(error):
    """Return the errors that say most: those of the alternative that goes the deepest."""
    if not error.context:
        return [error]
    deepest = max(len(one.absolute_path) for one in error.context)
    return [last for one in error.context if len(one.absolute_path) == deepest for last in _innermost(one)][:3]


def main():
    """Check the exchanges of standard input."""
    documents = Documents(sys.argv[1])
    for text in sys.stdin:
        one = json.loads(text)
        for problem in documents.problems(one):
            print(one["method"], one["path"], one["status"], problem)


main()
