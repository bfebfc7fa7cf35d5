// Options of every example. None means the real service; the API key comes from PRIVATEMODE_API_KEY.
export const options = {};
