#!/usr/bin/env bash
# A device in bash: curl, openssl, jq, awk and coreutils (od, sha256sum). It trains a linear classifier (tensors "weight"
# and "bias", F32) on a CSV file of "label,feature,…" lines, and follows docs/reference/protocol.md. It adds no noise and opens no
# letters, so it declines tasks that ask for either.
#
#   COTERIE_URL=… COTERIE_TOKEN=ct_… COTERIE_NAME=shell COTERIE_HOME=shell COTERIE_TASK=digits ./device.sh digits.csv
#
# COTERIE_ALLOW_RAW=0 declines every update without noise. COTERIE_URL stays the same after the first start; the token and the
# name are only needed for that.
set -euo pipefail
umask 077
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
data=${1:?give a CSV file of label,feature,… lines}
url=${COTERIE_URL:?} home=${COTERIE_HOME:?} task_name=${COTERIE_TASK:?}
most_json=$((16 << 20)) most_epochs=100 most_model_bytes=$((64 << 20)) most_pause=30
mkdir -p "$home/outbox"
scratch=$(mktemp -d)
heart=
trap 'rm -rf "$scratch"; [ -z "$heart" ] || kill "$heart" 2>/dev/null || true' EXIT
say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
sound_id() { [[ $1 =~ ^[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}$ && $1 != *..* ]]; }
number() { [[ $1 =~ ^[0-9]{1,9}$ ]]; }

# --- one request: repeated until it is answered; redirects are never followed; the key is in a file, not in `ps` -------
# Sets $status and leaves the body in $scratch/body, no more than $2 bytes of it.
ask() { # PATH MOST_BYTES CURL-OPTIONS…
    local path=$1 most=$2 pause=0.1 asked
    shift 2
    while :; do
        : > "$scratch/head"
        set +e
        curl -sS --proto =http,https --connect-timeout 5 --max-time 60 -D "$scratch/head" "$@" "$url$path" 2> "$scratch/why" |
            head -c "$most" > "$scratch/body"
        local failed=${PIPESTATUS[0]}
        set -e
        status=$(awk '/^HTTP\// { code = $2 } END { print code + 0 }' "$scratch/head")
        asked=$(awk 'tolower($1) == "retry-after:" { gsub("\r", ""); print $2 + 0 }' "$scratch/head" | tail -n 1)
        case $status:$failed in
            429:* | 502:* | 503:* | 504:*) ;;
            [1-9]*:0) return 0 ;;
            [1-9]*:23) status=0 && return 0 ;; # more came than may come
            *) say "$path: $(tail -n 1 "$scratch/why")" ;;
        esac
        awk -v a="${asked:-0}" -v b="$pause" -v most=$most_pause \
            'BEGIN { srand(); p = b * (0.5 + rand() / 2); if (a > most) a = most; print (a > p ? a : p) }' > "$scratch/pause"
        sleep "$(cat "$scratch/pause")"
        pause=$(awk -v p="$pause" 'BEGIN { print (p * 2 > 5 ? 5 : p * 2) }')
    done
}
api() { ask "$1" "$2" -H @"$home/authorization" "${@:3}"; }
ok() { [ "$status" -ge 200 ] && [ "$status" -lt 300 ]; }
is_json() { jq -e 'type == "object"' "$scratch/body" > "$scratch/null" 2>&1; }
why() { jq -r '.detail // "no reason given"' "$scratch/body" 2> "$scratch/null" || echo "status $status"; }

# --- 1. keys and registering ------------------------------------------------------------------------------------------
public() { openssl pkey -in "$1" -pubout -outform DER | tail -c 32; }
new_key() { [ -s "$2" ] || { openssl genpkey -algorithm "$1" -out "$2.new" && mv "$2.new" "$2"; }; }

register() {
    new_key ed25519 "$home/signing.pem"
    new_key x25519 "$home/sealing.pem"
    public "$home/sealing.pem" > "$scratch/sealing"
    openssl pkeyutl -sign -inkey "$home/signing.pem" -rawin -in "$scratch/sealing" -out "$scratch/proof"
    jq -n --arg token "${COTERIE_TOKEN:?}" --arg name "${COTERIE_NAME:?}" \
        --arg signing "$(public "$home/signing.pem" | openssl base64 -A)" \
        --arg sealing "$(openssl base64 -A < "$scratch/sealing")" --arg proof "$(openssl base64 -A < "$scratch/proof")" \
        '{token: $token, name: $name, signing_key: $signing, sealing_key: $sealing, proof: $proof}' > "$scratch/registration"
    ask /v1/devices $most_json -X POST -H 'Content-Type: application/json' --data-binary @"$scratch/registration"
    ok && is_json || die "not registered: $(why)"
    jq -er '"Authorization: Bearer " + .api_key' "$scratch/body" > "$home/authorization"
    jq -er .device.id "$scratch/body" > "$home/device.new"
    mv "$home/device.new" "$home/device"
}

# --- 2. joining -------------------------------------------------------------------------------------------------------
join_task() {
    api "/v1/tasks?name=$(jq -rn --arg name "$task_name" '$name | @uri')" $most_json
    ok && is_json || die "no list of tasks: $(why)"
    jq -c --arg name "$task_name" '[.items[] | select(.specification.name == $name)]' "$scratch/body" > "$scratch/tasks"
    [ "$(jq length "$scratch/tasks")" = 1 ] || die "not one task is called $task_name"
    task=$(jq -r '.[0].id' "$scratch/tasks")
    sound_id "$task" || die "the platform names a task in a way that no file may be named"
    # What the task said first counts: joining one without noise is the consent to updates without noise, there.
    [ -s "$home/$task.joined" ] || jq -r '.[0].specification.privacy' "$scratch/tasks" > "$home/$task.joined"
    samples=$(wc -l < "$data")
    api "/v1/tasks/$task/enrolments/$device" $most_json -X PUT -H 'Content-Type: application/json' \
        --data-binary "{\"samples\": $samples}"
    ok || die "not enrolled: $(why)"
}

# --- 3. a round -------------------------------------------------------------------------------------------------------
decline() {
    say "round $round: declined, $1"
    api "/v1/tasks/$task/rounds/$round/decline" $most_json -X POST -H 'Content-Type: application/json' \
        --data-binary "$(jq -n --arg why "$1" '{why: $why}')"
}

# Why this device does not do the work in $scratch/item; empty when it does.
objection() {
    jq -r --arg joined "$(cat "$home/$task.joined")" --argjson epochs $most_epochs --argjson most $most_model_bytes \
        --arg raw "${COTERIE_ALLOW_RAW:-1}" '
        def whole($least): type == "number" and . == floor and . >= $least;
        (.training.epochs // 1) as $e | (.training.batch_size // 32) as $b |
        if .sum != null then "this device does no secure sums"
        elif .topology != "star" or .incentive != "none" or .role != "solo" then "this device knows only plain stars"
        elif .privacy != $joined then "the task was joined with privacy \($joined)"
        elif .privacy != "none" then "this device adds no noise"
        elif $raw != "1" then "the owner allows no update without noise"
        elif ($e | whole(0) | not) or $e > $epochs then "this device does \($epochs) epochs at most"
        elif ($b | whole(1) | not) or (.batch_size | whole(0) | not) then "the batch size makes no sense"
        elif (.model_digests | length) != 1 then "this device trains one model"
        elif (.model_digests[0] | test("^[0-9a-f]{64}$") | not) then "the model has no digest"
        elif (.max_update_bytes | whole(1) | not) or .max_update_bytes > $most then "the model is too large"
        else "" end' "$scratch/item"
}

# The model into $scratch/model; fails when it does not come whole. No more than it may have is ever read.
fetch() {
    local digest=$1 most=$2 attempt
    for attempt in 1 2 3; do
        api "/v1/models/$digest" "$((most + 1))"
        ok || return 1
        [ "$(wc -c < "$scratch/body")" -le "$most" ] || return 1
        if [ "$(sha256sum < "$scratch/body" | cut -c 1-64)" = "$digest" ]; then
            mv "$scratch/body" "$scratch/model"
            return 0
        fi
    done
    return 1
}

# Trains and stores update and report in the outbox, so that a repeat sends the same bytes.
prepare() {
    local place=$1 length classes inputs
    length=$(od -An -t u8 -N 8 "$scratch/model" | tr -d ' ')
    number "$length" || return 1
    tail -c +9 "$scratch/model" | head -c "$length" > "$scratch/header"
    jq -e 'del(.__metadata__) | (keys == ["bias", "weight"]) and all(.[]; .dtype == "F32")
        and (.weight.shape | length == 2) and .bias.shape == [.weight.shape[0]]' "$scratch/header" > "$scratch/null" || return 1
    read -r classes inputs < <(jq -r '.weight.shape | "\(.[0]) \(.[1])"' "$scratch/header")
    tail -c +$((9 + length)) "$scratch/model" | od -An -v -w4 -t f4 > "$scratch/numbers"
    jq -r --arg c "$classes" --arg i "$inputs" '"\($c) \($i) \(.weight.data_offsets[0] / 4) \(.bias.data_offsets[0] / 4)"' \
        "$scratch/header" > "$scratch/shape"
    jq -r '.training as $t | (if .batch_size > 0 then .batch_size else $t.batch_size // 32 end) as $b
        | "\($t.epochs // 1) \($b) \($t.learning_rate // 0.1) \(.round)"' "$scratch/item" > "$scratch/recipe"
    awk -f "$here/train.awk" -v shape="$(cat "$scratch/shape")" -v recipe="$(cat "$scratch/recipe")" \
        -v figures="$scratch/figures" "$scratch/numbers" "$data" > "$scratch/change" || return 1
    { head -c $((8 + length)) "$scratch/model"; printf '%b' "$(cat "$scratch/change")"; } > "$place.update.new"
    jq -c -n --argjson samples "$samples" --slurpfile figures "$scratch/figures" '{form: "mean", weight: $samples,
        metrics: $figures[0], privacy: [{mechanism: "raw", parameter: 0, unit: "device", adjacency: "replaced"}]}' > "$place.report"
    mv "$place.update.new" "$place.update" # the update last: with it, all is there
}

work() {
    local objection basis place digest
    objection=$(objection) || objection="the work cannot be read"
    [ -z "$objection" ] || { decline "$objection"; return 0; }
    digest=$(jq -r '.model_digests[0]' "$scratch/item")
    basis=$(jq -cS '[.model_digests, .batch_size, .training, .noise_multiplier]' "$scratch/item" | sha256sum | cut -c 1-16)
    place=$home/outbox/$task.$round.$basis
    if [ ! -s "$place.update" ]; then
        fetch "$digest" "$(jq .max_update_bytes "$scratch/item")" || { decline "the model did not come as promised"; return 0; }
        prepare "$place" || { decline "this device trains weight and bias of a linear classifier"; return 0; }
    fi
    api "/v1/tasks/$task/rounds/$round/updates/$device" $most_json -X PUT -H 'Content-Type: application/octet-stream' \
        -H "Coterie-Digest: $(sha256sum < "$place.update" | cut -c 1-64)" -H "Coterie-Update: $(cat "$place.report")" \
        --data-binary @"$place.update"
    case $status in
        2*) say "round $round: $(jq -r .outcome "$scratch/body")" ;;
        400 | 413 | 422) decline "its update was refused: $(why)" ;;
        401 | 403) die "$(why)" ;;
        *) say "round $round: $(why)" ;;
    esac
    find "$home/outbox" -name "$task.*" ! -name "$task.$round.*" -delete
}

[ -s "$home/device" ] || register
device=$(cat "$home/device")
sound_id "$device" || die "$home/device holds no id"
join_task
beat() { while :; do curl -sS --max-time 20 -X POST -H @"$home/authorization" "$url/v1/devices/$device/heartbeat" || true; sleep 15; done; }
beat > "$scratch/beats" 2>&1 &
heart=$!
while :; do
    api "/v1/work?wait=20&task=$task" $most_json
    case $status in 401 | 403) die "$(why)" ;; esac
    if ! ok || ! is_json; then
        sleep 1 # the platform's own mistake
        continue
    fi
    ended=$(jq -r --arg task "$task" '.ended[$task] // ""' "$scratch/body")
    [ -z "$ended" ] || { say "$task_name $ended"; exit 0; }
    jq -c --arg task "$task" 'first(.items[] | select(.task_id == $task)) // empty' "$scratch/body" > "$scratch/item"
    if [ -s "$scratch/item" ] && round=$(jq -r .round "$scratch/item") && number "$round"; then
        work
    else
        sleep 0.5
    fi
done
