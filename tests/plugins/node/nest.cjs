// NestJS: a microservice on NATS, its messages and events, queue groups, and an error that comes back.
require("reflect-metadata");
const assert = require("node:assert");
const { Module } = require("@nestjs/common");
const { NestFactory } = require("@nestjs/core");
const { ClientProxyFactory, EventPattern, MessagePattern, Payload, RpcException, Transport } = require("@nestjs/microservices");
const { firstValueFrom, timeout } = require("rxjs");

const events = [];
class Sums {
  add(numbers) {
    return numbers.reduce((a, b) => a + b, 0);
  }
  fail() {
    throw new RpcException("not today");
  }
  noted(text) {
    events.push(text);
  }
}
const decorate = (name, ...decorators) => {
  const descriptor = Object.getOwnPropertyDescriptor(Sums.prototype, name);
  decorators.forEach((decorator) => decorator(Sums.prototype, name, descriptor));
  Payload()(Sums.prototype, name, 0);
};
decorate("add", MessagePattern("sum.add"));
decorate("fail", MessagePattern("sum.fail"));
decorate("noted", EventPattern("sum.noted"));
const { Controller } = require("@nestjs/common");
Controller()(Sums);
class App {}
Module({ controllers: [Sums] })(App);

async function main(url) {
  const options = { transport: Transport.NATS, options: { servers: [url], queue: "sums" } };
  const workers = [];
  for (let n = 0; n < 2; n++) {
    const worker = await NestFactory.createMicroservice(App, { ...options, logger: ["error"], abortOnError: false });
    await worker.listen();
    workers.push(worker);
  }
  const client = ClientProxyFactory.create(options);
  const ask = (pattern, data) => firstValueFrom(client.send(pattern, data).pipe(timeout(30000)));
  for (let n = 0; n < 20; n++) assert.strictEqual(await ask("sum.add", [n, 1]), n + 1);
  await assert.rejects(ask("sum.fail", []), (error) => JSON.stringify(error).includes("not today"));
  await firstValueFrom(client.emit("sum.noted", "once"), { defaultValue: null });
  for (let n = 0; events.length === 0 && n < 300; n++) await new Promise((go) => setTimeout(go, 100));
  await new Promise((go) => setTimeout(go, 200));
  assert.deepStrictEqual(events, ["once"], "one worker of the group gets an event");
  await client.close();
  for (const worker of workers) await worker.close();
  console.log("nestjs: messages, errors, events, a queue group");
}
main(process.argv[2]).then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
