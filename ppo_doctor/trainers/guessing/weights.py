"""Every weight and bound by which metrics are inferred: name, value, unit, reason.

A column's weight for a metric is the sum of what its name, the form of its values and its relations to other columns
say, in nats; `docs/own-scripts.md` describes the model. Bounds of single relations are beside them in `relations`.
"""

from __future__ import annotations

# Assignment -----------------------------------------------------------------------------------------------------------

#: Nats: weight of leaving a column open. A column needs more than this for any metric.
OPEN = -1.3
#: Nats: by how much an assignment has to exceed the best one without it, otherwise the column is left open.
MARGIN = 1.3
#: Columns that are assigned, the first of a log: the scripts at hand have fewer of their own names.
MOST_COLUMNS = 24

# Name -----------------------------------------------------------------------------------------------------------------

#: Nats: weight of a metric that a name may abbreviate, less the cost of the reading.
NAMED = 3.2
#: Nats: cost up to which a reading is plain, and above which it is ignored.
PLAIN_COST, MOST_COST = 0.5, 2.4
#: Nats: cost of a metric that is no reading of a name which has readings.
OTHER_THAN_READ = 0.8
#: Nats: weight of a word for the metrics that it suggests, and cost for all others.
HINTED, MISSED = 2.5, 1.3
#: Nats: the same for a word that many names begin with, and from how many names on it is one.
GROUP_HINTED, GROUP_SIZE = 1.2, 3
#: Nats: weight of a loss for policy or critic if the other one has a name of the same form ("La", "Lc").
PAIRED = 1.2
#: Nats: weight of a unit or sign for the metrics that have it, such as percent for shares.
UNIT_MATCHES = 2.6
#: Nats: weight of a column with a planned count beside it ("2 of 16 steps") for the steps or epochs that were done.
PLANNED_BESIDE = 7.5
#: Share of 0.4: names that suggest a metric in an average log. The more do, the less likely is one that suggests none.
NAMED_SHARE = 0.4
#: Factor: how much that counts.
UNNAMED = 0.4
#: Nats: cost of each cut of a word into abbreviations, and of ignoring a word in a group before the name.
CUT, IGNORED_GROUP = 0.4, 0.3
#: Nats: cost if a name says only "policy" or "critic", and if it is a single letter as well.
BARE_PART, SINGLE_LETTER = 0.5, 1.0
#: Words of a name, letters of a word that is cut, and readings kept: bounds of the search.
MOST_WORDS, LONGEST_CUT, MOST_READINGS = 6, 8, 64
#: Letters up to which a word is cut into single letters.
FEW_LETTERS = 4

# Form of values -------------------------------------------------------------------------------------------------------

#: Records from which on a column has a form, and relations to other columns.
LEAST_RECORDS = 16
#: Factor on the sum of the log-odds of properties, which depend on each other; fitted to logs of scripts.
TEMPER = 0.37
#: Columns: added to each count of a class, so that a class never seen is not impossible.
SMOOTHING = 0.5
#: Share of runs with a column that is unlike its metric: what is wrong with a run is unusual values.
UNUSUAL_RUNS = 0.12
#: Nats: least weight of possible values for a share, or for values above 1000, that a name means.
LEAST_IF_NAMED, LARGE_VALUES = -0.5, 1e3
#: Factor on how common a metric is in logs of trainers, in nats below the commonest.
COMMON = 0.5
#: Nats: how much rarer a metric counts at most if a name suggests it.
RAREST = -2.0
#: Nats: how much rarer metrics of agents are in logs of language models, and the other way round.
OTHER_KIND = 1.5
#: Nats: cost of values that have to be negated or divided without a word that says so.
CONVERTED = 1.0
#: Share of values that may be impossible for a metric: damaged records.
DAMAGED = 0.02

# Relations ------------------------------------------------------------------------------------------------------------

#: Nats: weight of a known relation for both columns, multiplied by 0.5 to 3 for weak and strong ones.
RELATED = 1.2
#: Nats: weight of any column for the return, and of the first one: nearly every script prints it, and prints it first.
EARNED, FIRST = 1.0, 0.5
#: Nats: weight of a column for the return if its deviation is logged beside it.
SPREAD_BESIDE = 1.5

# Whole log ------------------------------------------------------------------------------------------------------------

#: Metrics: policy and critic metrics that make a log one of PPO, and the same if one is a KL, ratio or clip fraction.
ENOUGH_POLICY_METRICS, ENOUGH_WITH_PPO = 3, 2
#: Metrics that a log needs if most were inferred by form.
ENOUGH_METRICS = 5
#: Metrics that names or relations suggest, in a log without one of the four parts of a training.
MANY_SUGGESTED = 6
#: Metrics of policies that names alone have to suggest if the log lacks a part, and with a return.
ENOUGH_NAMED, ENOUGH_NAMED_WITH_RETURN = 5, 4
#: Metrics of policies that plain names have to mean if a word of another task is logged beside them.
ENOUGH_PLAIN = 2
