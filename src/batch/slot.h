/* batch/slot.h: the active tasks of a batch. */
#pragma once

#include "batch/state.h"

/* Starts a task: its run, its grade and its line. */
void slot_begin(struct batch *b, struct task_entry *place);
/* Ends all slots without writing lines; their runs end soon. */
void slots_stop(struct batch *b);
