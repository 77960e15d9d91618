// Styles of libraries, which the build turns into text.

declare module "*.css" {
  const text: string;
  // oxlint-disable-next-line import/no-default-export -- the bundler exports text as default
  export default text;
}
