/* export/otlp.h: runs, with their descendants, as traces of OpenTelemetry. */
#pragma once

#include <stdio.h>

#include "droste.h"

/* Writes an ExportTraceServiceRequest of OTLP/JSON as a line for each run. Repeated, it writes the
 * same spans. */
int otlp_write(droste_record *record, const droste_export *runs, FILE *file, droste_error *err);
