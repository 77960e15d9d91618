// What the daemon takes as a name of images, snapshots and recipes.

export const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/;
