// A device in TypeScript: registers, joins a task, trains a linear classifier on a CSV file, hands in its change.
// It adds no noise and opens no letters, so it declines work that asks for either. What it does is docs/reference/protocol.md.
import { Home, registration, sha256 } from "./home.js";
import { Platform, TooMuch, isObject, objectOf, pause, why } from "./platform.js";
import { NoModel, read, write } from "./safetensors.js";
import { readSamples, train } from "./softmax.js";
const SOUND_ID = /^[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}$/;
const MOST_EPOCHS = 100;
const MOST_MODEL_BYTES = 64 << 20;
const POLL_SECONDS = 20;
const HEARTBEAT_SECONDS = 15;
class Declined extends Error {
}
class Device {
    home;
    platform;
    id;
    samples;
    allowRaw;
    constructor(home, platform, id, samples, allowRaw) {
        this.home = home;
        this.platform = platform;
        this.id = id;
        this.samples = samples;
        this.allowRaw = allowRaw;
    }
    /** From the folder, or by registering: keys are stored before, so a repeat after a crash gives the same device. */
    static async open(home, url, token, name, samples, allowRaw) {
        const known = home.read("device.json");
        if (known !== null) {
            const { id, apiKey } = JSON.parse(known);
            return new Device(home, new Platform(url, apiKey), id, samples, allowRaw);
        }
        const answer = await new Platform(url).ask("POST", "/v1/devices", { json: registration(home, token, name) });
        const told = objectOf(answer);
        const device = told?.["device"];
        const [id, apiKey] = [isObject(device) ? device["id"] : null, told?.["api_key"]];
        if (typeof id !== "string" || typeof apiKey !== "string")
            throw new Error(`not registered: ${why(answer)}`);
        home.write("device.json", JSON.stringify({ id: soundId(id), apiKey }));
        return new Device(home, new Platform(url, apiKey), id, samples, allowRaw);
    }
    async join(name) {
        const answer = await this.platform.ask("GET", `/v1/tasks?name=${encodeURIComponent(name)}`);
        const items = objectOf(answer)?.["items"];
        const found = Array.isArray(items) ? items.filter((task) => isObject(task?.specification) && task.specification["name"] === name) : [];
        if (found.length !== 1)
            throw new Error(`not one task is called ${name} (${found.length}): ${why(answer)}`);
        const task = soundId(String(found[0].id));
        // What the task said first counts: joining one without noise is the consent to updates without noise, there.
        if (this.home.read(`${task}.joined`) === null)
            this.home.write(`${task}.joined`, String(found[0].specification["privacy"]));
        const enrolled = await this.platform.ask("PUT", `/v1/tasks/${task}/enrolments/${this.id}`, { json: { samples: this.samples.length } });
        if (objectOf(enrolled) === null)
            throw new Error(`not enrolled: ${why(enrolled)}`);
        return task;
    }
    /** Does the task's work until it has ended; how it ended. */
    async run(task) {
        const beat = setInterval(() => void this.beat(), 1000 * HEARTBEAT_SECONDS);
        try {
            for (;;) {
                const answer = await this.platform.ask("GET", `/v1/work?wait=${POLL_SECONDS}&task=${task}`);
                if (answer.status === 401 || answer.status === 403)
                    throw new Error(why(answer));
                const told = objectOf(answer);
                const [ended, items] = [told?.["ended"], told?.["items"]];
                if (!isObject(ended) || !Array.isArray(items)) {
                    await pause(1); // the platform's own mistake
                    continue;
                }
                if (typeof ended[task] === "string")
                    return ended[task];
                const item = items.find((each) => isObject(each) && each["task_id"] === task);
                if (isObject(item) && whole(item["round"], 1))
                    await this.work(task, item["round"], item);
                else
                    await pause(0.5);
            }
        }
        finally {
            clearInterval(beat);
        }
    }
    async beat() {
        const init = { method: "POST", headers: { Authorization: `Bearer ${this.platform.apiKey}` }, redirect: "manual" };
        // One that failed is worth no patience: the next says the same.
        await fetch(`${this.platform.url}/v1/devices/${this.id}/heartbeat`, { ...init, signal: AbortSignal.timeout(10_000) }).catch(() => undefined);
    }
    async work(task, round, item) {
        const place = `/v1/tasks/${task}/rounds/${round}`;
        try {
            this.check(task, item);
            const basis = sha256(JSON.stringify([item["model_digests"], item["batch_size"], item["training"], item["noise_multiplier"]])).slice(0, 16);
            const prepared = this.home.prepared(task, round, basis) ?? (await this.prepare(task, round, basis, item));
            const headers = { "Coterie-Digest": sha256(prepared.body), "Coterie-Update": prepared.report };
            const answer = await this.platform.ask("PUT", `${place}/updates/${this.id}`, { body: prepared.body, headers });
            if ([400, 413, 422].includes(answer.status))
                throw new Declined(`its update was refused: ${why(answer)}`);
            if (answer.status === 401 || answer.status === 403)
                throw new Error(why(answer));
            console.error(`round ${round}: ${objectOf(answer)?.["outcome"] ?? why(answer)}`);
        }
        catch (error) {
            if (!(error instanceof Declined || error instanceof NoModel || error instanceof TooMuch))
                throw error;
            console.error(`round ${round}: declined, ${error.message}`);
            await this.platform.ask("POST", `${place}/decline`, { json: { why: error.message.slice(0, 2000) } });
        }
        this.home.forgetBefore(task, round);
    }
    /** Declines what this device does not know, cannot do, or what its owner did not consent to. */
    check(task, item) {
        const joined = this.home.read(`${task}.joined`);
        const training = isObject(item["training"]) ? item["training"] : {};
        if (item["sum"] !== null && item["sum"] !== undefined)
            throw new Declined("this device does no secure sums");
        if (item["topology"] !== "star" || item["incentive"] !== "none" || item["role"] !== "solo")
            throw new Declined("this device knows only plain stars");
        if (item["privacy"] !== joined)
            throw new Declined(`the task was joined with privacy ${joined}`);
        if (item["privacy"] !== "none")
            throw new Declined("this device adds no noise");
        if (!this.allowRaw)
            throw new Declined("the owner allows no update without noise");
        if (!whole(training["epochs"] ?? 1, 0) || Number(training["epochs"] ?? 1) > MOST_EPOCHS)
            throw new Declined(`this device does ${MOST_EPOCHS} epochs at most`);
        if (!whole(training["batch_size"] ?? 32, 1) || !whole(item["batch_size"], 0))
            throw new Declined("the batch size makes no sense");
        const rate = training["learning_rate"] ?? 0.1;
        if (typeof rate !== "number" || !(rate >= 0 && rate < Infinity))
            throw new Declined("the learning rate makes no sense");
        if (!whole(item["max_update_bytes"], 1) || item["max_update_bytes"] > MOST_MODEL_BYTES)
            throw new Declined("the model is too large");
        const digests = item["model_digests"];
        if (!Array.isArray(digests) || digests.length !== 1 || !/^[0-9a-f]{64}$/.test(String(digests[0])))
            throw new Declined("this device trains one model");
    }
    /** Trains, and stores what will be sent before it is: the same work gives the same bytes. */
    async prepare(task, round, basis, item) {
        const digest = String(item["model_digests"][0]);
        const answer = await this.platform.ask("GET", `/v1/models/${digest}`, { most: Number(item["max_update_bytes"]) });
        if (answer.status !== 200)
            throw new Declined(`the model did not come: ${why(answer)}`);
        if (sha256(answer.body) !== digest)
            throw new Declined("what came is not the model that was named");
        const training = item["training"];
        const recipe = {
            epochs: Number(training["epochs"] ?? 1),
            batchSize: Number(item["batch_size"]) || Number(training["batch_size"] ?? 32),
            learningRate: Number(training["learning_rate"] ?? 0.1),
        };
        const seed = Number.parseInt(sha256(`${task}|${round}|${this.id}`).slice(0, 8), 16);
        const { change, metrics } = train(readModel(answer), this.samples, recipe, seed);
        const claim = { mechanism: "raw", parameter: 0, unit: "device", adjacency: "replaced" };
        const report = JSON.stringify({ form: "mean", weight: this.samples.length, metrics, privacy: [claim] });
        const prepared = { report, body: write(change) };
        this.home.keep(task, round, basis, prepared);
        return prepared;
    }
}
function readModel(answer) {
    try {
        return read(answer.body);
    }
    catch (error) {
        if (error instanceof NoModel)
            throw error;
        throw new NoModel(`the model's header cannot be read: ${error}`);
    }
}
function whole(value, least) {
    return typeof value === "number" && Number.isSafeInteger(value) && value >= least;
}
function soundId(id) {
    if (!SOUND_ID.test(id) || id.includes(".."))
        throw new Error("the platform names something in a way that no file may be named");
    return id;
}
function given(name) {
    const value = process.env[name];
    if (!value)
        throw new Error(`set ${name}`);
    return value;
}
async function main() {
    const path = process.argv[2];
    if (!path)
        throw new Error("give a CSV file of label,feature,… lines");
    const home = new Home(given("COTERIE_HOME"));
    const [token, name] = home.read("device.json") === null ? [given("COTERIE_TOKEN"), given("COTERIE_NAME")] : ["", ""];
    const device = await Device.open(home, given("COTERIE_URL").replace(/\/+$/, ""), token, name, readSamples(path), process.env["COTERIE_ALLOW_RAW"] !== "0");
    console.error(`${given("COTERIE_TASK")} ${await device.run(await device.join(given("COTERIE_TASK")))}`);
}
main().then(() => process.exit(0), (error) => {
    console.error(`error: ${error instanceof Error ? error.message : error}`);
    process.exit(1);
});
