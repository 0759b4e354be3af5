// The peer of bench_ws.py: npm `ws` and nothing else. Prints its port; then, of each line on stdin:
// "gc" collects garbage, any other line goes to all clients. Both are answered "done".
import { createInterface } from "node:readline";
import { WebSocketServer } from "ws";

const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false, backlog: 1024 });

server.on("listening", () => console.log(server.address().port));
server.on("connection", (socket) => socket.on("message", () => {}));
createInterface({ input: process.stdin }).on("line", (line) => {
    if (line === "gc") globalThis.gc();
    else for (const client of server.clients) client.send(line);
    console.log("done");
}).on("close", () => process.exit(0));
