# A tmux server, driven by plain clients: windows and panes with shells in terminals of their own,
# keys, resizing, a pane that ends.
. "$SCENES/prelude.sh"
export LC_ALL=C.UTF-8 ENV=
at() { tmux -N -S "$PWD/socket" "$@"; }
shows() { at capture-pane -p -t "$1" | grep -qx "$2"; }
panes() { [[ $(at list-panes -s -t work | wc -l) == "$1" ]]; }
cat >conf <<'C'
set -g default-command "PS1='% ' exec sh"
set -g default-terminal screen
set -g exit-empty off
set -g status off
C
serve tmux -S "$PWD/socket" -f conf -D
wait_for at list-commands
at new-session -d -s work -x 60 -y 12
wait_for shows work:0.0 %
at send-keys -t work:0.0 'stty size; tty >/dev/null && echo on a terminal' Enter
wait_for shows work:0.0 'on a terminal'
at split-window -v -t work:0.0 'trap "echo resized; stty size" WINCH; echo second; while :; do sleep 0.2; done'
wait_for shows work:0.1 second
at resize-pane -t work:0.1 -y 3
wait_for shows work:0.1 resized
cat >waits.sh <<'W'
trap 'echo caught; exit 3' INT
echo started
while :; do sleep 0.2; done
W
at send-keys -t work:0.0 'sh waits.sh' Enter
wait_for shows work:0.0 started
at send-keys -t work:0.0 C-c
wait_for shows work:0.0 '.*caught'
at send-keys -t work:0.0 'echo "interrupted $?"' Enter
wait_for shows work:0.0 'interrupted 3'
at new-window -t work 'seq 1 200; exec cat'
wait_for shows work:1.0 200
at send-keys -t work:1.0 'typed' Enter
wait_for shows work:1.0 typed
at capture-pane -p -S - -t work:1.0 | sed -n '1,200p' | cksum
at list-panes -s -t work -F '#{window_index}.#{pane_index} #{pane_width}x#{pane_height} #{pane_current_command}' |
    cut -d' ' -f1,2
at kill-pane -t work:0.1
wait_for panes 2
at send-keys -t work:0.0 'exit' Enter
wait_for panes 1
at list-windows -t work -F '#{window_index} #{window_panes}'
at kill-server
served
