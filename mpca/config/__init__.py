"""The configuration of a run: read from TOML, Spark and the command line, in that order.

`sections` has every key with its default, meaning and unit; `sources` reads them; `spark` has the rules for [spark];
`resolved` is the result, and its file. Wrong values are refused before a cluster is used, with the key, the value, its source
and the remedy. Not for checks that need a cluster, data or a model: their owners make them.
"""
