/* export/grades.c: see grades.h. */
#include "export/grades.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/line_reader.h"
#include "base/error.h"

static void grades_put(struct steps_out *o, const char *run, struct json_object *grade)
{
    struct json_object *passed = json_object_object_get(grade, "passed");
    field_open(&o->text, NULL, '{');
    field_string(&o->text, "type", "grade");
    field_string(&o->text, "run", run);
    field_string(&o->text, "grader", json_get_string(grade, "grader", NULL));
    if (json_object_is_type(passed, json_type_boolean))
        field_bool(&o->text, "passed", json_object_get_boolean(passed));
    else
        field_string(&o->text, "passed", NULL);
    field_real(&o->text, "score", json_get_double(grade, "score", 0));
    field_string(&o->text, "error", json_get_string(grade, "error", NULL));
    field_close(&o->text, '}');
    buf_putc(&o->text, '\n');
}

static int grades_take_line(void *arg, const struct line *line, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    if (line_is_blank(line) ||
        json_parse(line->text, line->len, &json_limits_large, &o, NULL) < 0 ||
        !json_object_is_type(o, json_type_object))
        return 0;
    const char *run = json_get_string(o, "run", NULL);
    struct json_object *grade = json_object_object_get(o, "grade");
    if (!run || !json_object_is_type(grade, json_type_object))
        return 0;
    grades_put(arg, run, grade);
    return steps_flush(arg, err);
}

int grades_write(const char *path, struct steps_out *o, droste_error *err)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "opening %.160s", path);
    return line_reader_read(fd, path, grades_take_line, o, err);
}
