"""The cost of a fit, and of what surrounds it, before it runs.

=============  ===============================================================================
module         contents
=============  ===============================================================================
``plan``       the plan of a fit, as shown to users
``shape``      sizes of the data
``resources``  workers, threads and memory
``machine``    speed of a core
``memory``     peak memory of workers and driver
``sweeps``     how often the data is read
``cost``       arithmetic, network traffic and time
``stages``     ingest and review
=============  ===============================================================================
"""
