"""The mathematics of GP-GC.

==============  ==============================================================================
module          contents
==============  ==============================================================================
``evidence``    the objective, its gradient and the posterior, from k×k arrays
``noise``       noise models, and the steps of the noise
``oracle``      sweeps over the rows, in memory and on a cluster
``solvers``     optimisation of the evidence
``warm_start``  the sample of rows that is drawn before the first read
``training``    the training data of a fit
``options``     the options of a fit
``checkpoint``  the file from which a stopped fit is resumed
``attempt``     a fit with products of one precision
``fit``         the whole fit: float32 first, then float64 if necessary
==============  ==============================================================================
"""
