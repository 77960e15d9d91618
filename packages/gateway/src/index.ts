// Public exports of the gateway package.

export { startGateway, type Gateway } from "./gateway.ts";
export { gatewayOptions, type GivenOptions } from "./options.ts";
