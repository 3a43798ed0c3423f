"""Scripts that run on a host over ssh: the start of a dispatcher, and the list of running ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from tuner.engines.names import plain_name
from tuner.engines.port import ENV_ALLOCATION, ENV_DEADLINE, ENV_NUMBER
from tuner.engines.setup_lines import setup_lines

#: Between the fields of a line that `look_script` prints.
SEPARATOR = "|"
_FOLDER = '"$HOME"/.tuner/allocations/'
#: Start time of a process; empty for one that has ended, also where PID 1 does not reap (a zombie).
_BEGAN = """\
began_of() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 !~ /[ZXx]/ { print $20 }'; }
"""
_START = """\
state={state}
mkdir -p "$state"
is_alive() {{
    [ -f "$state/pid" ] && read -r pid began < "$state/pid" && [ "$(began_of "$pid")" = "$began" ]
}}
is_alive && exit 0
rm -f "$state/pid" "$state/exit" "$state/asked"
cat > "$state/run.sh" <<'TUNER_RUN'
{run}TUNER_RUN
setsid nohup bash "$state/run.sh" > "$state/log" 2>&1 < /dev/null &
for _ in $(seq 100); do [ -f "$state/pid" ] && exit 0; sleep 0.1; done
echo "The dispatcher did not start: see $state/log" >&2
exit 1
"""
_RUN = """\
state={state}
echo "$$ $(began_of "$$")" > "$state/pid.new"
pid=
trap '[ -n "$pid" ] && kill -TERM "$pid" 2>/dev/null' TERM
{exports}date +%s > "$state/started"
echo "${{{deadline}:-}}" > "$state/deadline"
mv "$state/pid.new" "$state/pid"
{setup}cd {folder} || {{ echo 1 > "$state/exit"; exit 1; }}
{command} &
pid=$!
[ -f "$state/asked" ] && kill -TERM "$pid"
wait "$pid"; code=$?
while kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done
echo "$code" > "$state/exit"
"""
_LOOK = """\
for state in {study}/*/; do
    [ -f "$state/pid" ] || continue
    read -r pid began < "$state/pid"
    alive=; asked=
    [ "$(began_of "$pid")" = "$began" ] && alive=1
    [ -f "$state/asked" ] && asked=1
    code=$(cat "$state/exit" 2>/dev/null)
    started=$(cat "$state/started" 2>/dev/null); deadline=$(cat "$state/deadline" 2>/dev/null)
    echo "$(basename "$state")|$alive|$asked|$code|$started|$deadline"
done
"""
_CANCEL = """\
for number in {numbers}; do
    state={study}/$number
    [ -f "$state/pid" ] || continue
    read -r pid began < "$state/pid"
    touch "$state/asked"
    [ "$(began_of "$pid")" = "$began" ] && kill -TERM "$pid"
done
true
"""


def start_script(
    study: str,
    host: str,
    number: int,
    *,
    name: str,
    command: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    setup: Sequence[str],
    time_s: float | None,
) -> str:
    """A script for bash on the host; it starts one dispatcher, unless that runs already."""
    state = _state(study, host, number)
    run = _BEGAN + _RUN.format(
        state=state,
        exports=_exports({**environment, ENV_ALLOCATION: name, ENV_NUMBER: str(number)}, time_s),
        deadline=ENV_DEADLINE,
        setup="".join(f"{line}\n" for line in setup_lines(setup)),
        folder=shlex.quote(folder),
        command=" ".join([on_host(command[0]), *map(shlex.quote, command[1:])]),
    )
    return _BEGAN + _START.format(state=state, run=run)


def on_host(path: str) -> str:
    """A path quoted for the host's shell, where `~/` is the home folder there."""
    if path.startswith("~/"):
        return f'"$HOME"/{shlex.quote(path[2:])}'
    return shlex.quote(path)


def look_script(study: str, host: str) -> str:
    """Prints a line for each allocation of a study on the host."""
    return _BEGAN + _LOOK.format(study=_study(study, host))


def cancel_script(study: str, host: str, numbers: Sequence[int]) -> str:
    """Asks dispatchers to save and end."""
    return _BEGAN + _CANCEL.format(study=_study(study, host), numbers=" ".join(map(str, numbers)))


def log_script(study: str, host: str, number: int) -> str:
    """Prints the output of a dispatcher."""
    return f"cat {_state(study, host, number)}/log\n"


def _exports(environment: Mapping[str, str], time_s: float | None) -> str:
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
    if time_s is not None:
        lines.append(f"export {ENV_DEADLINE}=$(($(date +%s) + {int(time_s)}))\n")
    return "".join(lines)


def _study(study: str, host: str) -> str:
    # Apart for each host: the home folder may be shared.
    return f"{_FOLDER}{plain_name(study)}/{plain_name(host)}"


def _state(study: str, host: str, number: int) -> str:
    return f"{_study(study, host)}/{number}"
