exports.pick = (list, day) => list[((day % list.length) + list.length) % list.length];
