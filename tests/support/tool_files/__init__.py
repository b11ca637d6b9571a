"""Corrected masks as files of Label Studio and CVAT, written by the libraries of these tools.

The libraries are too large to be among the tests' own needs, and their lower bounds are above those
of this package. ``python -m tests.support.tool_files`` writes the files, in an environment with
label-studio-sdk and datumaro (which is what CVAT writes its files with); ``versions.json`` has the
versions. Each corrects the masks of ``tests.support.verdict_files.SHIFTED``, and leaves those of
the other exported images unchanged.
"""
