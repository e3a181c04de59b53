"""Validates Kubernetes objects against the published schemas: `validate.py CRDS FILE...`.

CRDS is a folder of CustomResourceDefinitions; all other kinds are those of the newest Kubernetes that the package
kubernetes-validate knows. Unknown fields are errors. Prints a line for each object and each fault; exits with 1 if there is any.
"""
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml


def strict(schema):
    """A structural schema of a CRD that refuses fields it does not name."""
    if isinstance(schema, list):
        return [strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: {n: strict(s) for n, s in v.items()} if k == "properties" else strict(v) for k, v in schema.items()}
    if "properties" in out and "type" in out and not schema.get("x-kubernetes-preserve-unknown-fields"):
        out.setdefault("additionalProperties", False)
    return out


def main(crds, files):
    custom = {}
    for path in pathlib.Path(crds).glob("*.yaml"):
        for crd in yaml.safe_load_all(path.read_text()):
            if not crd or crd.get("kind") != "CustomResourceDefinition":
                continue
            for version in crd["spec"]["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}  # checked by the server, and by us: below
                custom[crd["spec"]["group"] + "/" + version["name"], crd["spec"]["names"]["kind"]] = schema
    faults, newest = 0, kubernetes_validate.latest_version()
    for file in files:
        for n, item in enumerate(yaml.safe_load_all(pathlib.Path(file).read_text())):
            what = "%s: object %d, %s %s" % (file, n + 1, item.get("kind"), item.get("metadata", {}).get("name"))
            schema = custom.get((item.get("apiVersion"), item.get("kind")))
            try:
                if not item.get("metadata", {}).get("name"):
                    raise ValueError("it has no name")
                if schema:
                    jsonschema.Draft202012Validator(schema).validate(item)
                else:
                    kubernetes_validate.validate(item, newest, strict=True)
                print(what, "is valid")
            except Exception as e:
                faults += 1
                at = "/".join(str(p) for p in getattr(e, "absolute_path", None) or getattr(e, "path", None) or [])
                print(what, "at", at or "the top", "-", type(e).__name__, getattr(e, "message", str(e)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
