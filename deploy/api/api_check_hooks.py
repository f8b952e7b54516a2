"""What deploy/api-check leaves out."""

import schemathesis


@schemathesis.hook
def filter_case(context, case):
    """YAML reads words as numbers and truth values, and the other way round, so that what is wrong
    by the description may be right: the same bodies are asked as JSON."""
    return case.media_type != "application/yaml"
