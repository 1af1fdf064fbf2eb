"""Subject of an incident: the one thing that is suspected, and the name of its FaultIncident."""

import re
from hashlib import sha256

from health.remediation.evidence import Evidence, NodeKey
from health.verdicts.verdict import Part

_ONE_NODE = (Part.RANK, Part.NODE, Part.NIC)


def subject_of(evidence: Evidence) -> str:
    """Id of the incident that evidence belongs to, from what it blames alone."""
    if evidence.part in _ONE_NODE and len(evidence.nodes) == 1:
        return node_subject(evidence.nodes[0])
    if evidence.part in (Part.LINK, Part.GROUP) and evidence.nodes:
        keys = sorted(evidence.nodes, key=lambda key: key.name)
        return _id(str(evidence.part), keys[0].name, *(f"{key.name}/{key.uid}" for key in keys))
    return _id("job", evidence.job, evidence.job)


def node_subject(key: NodeKey) -> str:
    return _id("node", key.name, f"{key.name}/{key.uid}")


def domain_subject(domain: str) -> str:
    return _id("domain", domain, domain)


def _id(kind: str, shown: str, *whole: str) -> str:
    """A name that Kubernetes accepts: kind, a readable part, and a digest that tells subjects apart."""
    readable = re.sub(r"[^a-z0-9]+", "-", shown.lower()).strip("-")[:40].strip("-")
    return f"{kind}-{readable}-{sha256('|'.join((kind, *whole)).encode()).hexdigest()[:10]}"
